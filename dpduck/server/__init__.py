"""Serving private answers: the vault, the window, the gate between them and everyone else."""
