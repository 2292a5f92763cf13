"""Frozen values that every station speaks: domains, privacy units, budgets, errors, types of arrays."""
