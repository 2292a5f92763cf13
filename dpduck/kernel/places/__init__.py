"""Places of rows: tables themselves, prepared tables, and engines."""
