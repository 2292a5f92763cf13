"""Noisy answers to estimates, their errors and intervals."""
