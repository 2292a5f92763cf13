"""Every kind of statement, from text to a frozen value."""
