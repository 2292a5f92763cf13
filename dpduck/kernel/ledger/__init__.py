"""Claim: nothing leaves that was not paid for."""
