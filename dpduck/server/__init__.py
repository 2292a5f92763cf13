"""Serving private answers: the vault, the public database, the gate between them and everyone else."""
