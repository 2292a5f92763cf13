"""Mechanisms, one folder each, and their common part: the order of a release."""
