"""Estimates from noisy answers, with their errors and intervals."""
