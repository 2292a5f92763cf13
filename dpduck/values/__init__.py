"""Frozen values that all other folders use: domains, privacy units, budgets, errors, SQL types, types of arrays."""
