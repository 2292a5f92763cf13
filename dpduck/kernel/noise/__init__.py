"""Claim: these integers have exactly this law. Sees no data."""
