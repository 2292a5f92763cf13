"""Flight SQL."""
