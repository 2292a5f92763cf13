"""Strategies for interval queries over ordered attributes, and their planners."""
