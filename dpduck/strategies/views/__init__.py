"""Strategy O: a search for views (marginals to measure) under pure epsilon."""
