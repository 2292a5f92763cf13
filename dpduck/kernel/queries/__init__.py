"""Kinds of queries, one per file: what each asks about counts, its price, and the draw of its noisy answer."""
