"""Connections, functions, command line: no mathematics."""
