"""Annotated SQL to a frozen Request; never opens data."""
