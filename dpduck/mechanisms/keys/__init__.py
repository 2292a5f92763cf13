"""Keys that nobody declared, chosen privately."""
