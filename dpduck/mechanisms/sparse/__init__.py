"""Projections, histograms and sessions over sparse keys."""
