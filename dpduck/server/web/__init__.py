"""Listener of the web page, and its pages."""
