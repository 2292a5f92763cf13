"""Implicit matrices of counting, and hashing; no data and no noise."""
