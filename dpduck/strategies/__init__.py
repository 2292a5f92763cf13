"""One file per strategy: which integer queries are measured and how they are inverted."""
