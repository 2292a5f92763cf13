"""Evaluation of an analyst's expressions over one row, in a process of its own."""
