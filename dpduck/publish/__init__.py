"""Publication of released answers as files, tables, reports and certificates."""
