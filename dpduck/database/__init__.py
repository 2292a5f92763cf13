"""A connection, its functions, and the way from a statement to its mechanism."""
