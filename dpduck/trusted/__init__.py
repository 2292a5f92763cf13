"""The only code that sees private rows, exact counts or randomness."""
