"""Summaries and sketches of sparse data."""
