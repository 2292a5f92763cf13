"""Statements of a table's owner: policies, domains, drafts of policies, and declarations of public tables."""
