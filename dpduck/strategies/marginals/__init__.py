"""Strategies over marginals, and their planners."""
