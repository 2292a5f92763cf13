"""Releases in files of their own."""
