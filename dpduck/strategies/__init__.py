"""Budgets, predicted variances, the choice of a strategy, recovery: from public numbers alone."""
