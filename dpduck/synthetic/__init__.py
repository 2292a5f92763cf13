"""Synthetic data: distributions that are fitted to noisy answers only, and rows drawn from them."""
