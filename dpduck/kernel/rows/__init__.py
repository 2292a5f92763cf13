"""Rows to integers, whatever values one row has."""
