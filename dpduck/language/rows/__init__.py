"""Private rows of a statement: the expressions that may run over a row, and the bound on a unit's contribution."""
