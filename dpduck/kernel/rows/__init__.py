"""Rows to integers, whatever one row does."""
