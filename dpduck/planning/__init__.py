"""Budgets, predicted variances and the choice of a strategy, from public facts alone."""
