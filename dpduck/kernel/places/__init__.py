"""Places where the counted rows lie: the stored tables, prepared copies of them, or another engine."""
