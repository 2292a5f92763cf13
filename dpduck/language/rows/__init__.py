"""Rows boundary: the expressions that may run over one private row, and the bound on one unit's contribution."""
