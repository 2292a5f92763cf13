"""SQL text, its tokens, names and positions."""
