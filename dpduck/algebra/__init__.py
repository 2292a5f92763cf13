"""Matrices of counting queries that are never built, and hashing. This package handles no data and no noise."""
