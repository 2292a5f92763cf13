"""Statements of the owner: policies, domains, public declarations."""
