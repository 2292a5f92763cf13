"""Samplers of random integers. Claim: they have exactly the stated distribution. No code here sees data."""
