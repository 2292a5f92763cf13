"""Expressions over the stored columns of one row, and their SQL."""
