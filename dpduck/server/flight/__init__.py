"""Listener for clients of Arrow Flight SQL."""
