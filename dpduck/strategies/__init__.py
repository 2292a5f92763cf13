"""Noise for each query, predicted variances, the choice of a strategy, and recovery, from public numbers alone."""
