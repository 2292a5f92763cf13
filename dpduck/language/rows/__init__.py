"""The rows boundary: what may run over one private row, and what one unit can add."""
