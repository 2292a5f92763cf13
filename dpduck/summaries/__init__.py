"""Sparse publication: the choice of a summary by public numbers, its estimators, dyadic ranges, wavelets, sketches."""
