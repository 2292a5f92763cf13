"""Sparse queries over unbounded universes: projections, lazy histograms, sessions of multiplicative weights."""
