"""Implicit matrices of counting, and hashing. It handles no data and no noise."""
