"""Synthetic tables by multiplicative weights."""
