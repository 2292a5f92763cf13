"""Kinds of queries, one per file: each with its question about counts, its price and the draw of its answer."""
