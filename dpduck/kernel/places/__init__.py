"""Where rows lie: prepared tables, and engines."""
