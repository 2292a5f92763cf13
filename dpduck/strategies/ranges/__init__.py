"""Strategies over ranges, and their planners."""
