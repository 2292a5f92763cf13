"""Counts, sums and other aggregates by declared keys."""
