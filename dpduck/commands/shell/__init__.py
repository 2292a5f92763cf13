"""The owner's shell: one process that stays open for statements, queries and commands that begin with a dot."""
