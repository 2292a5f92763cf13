"""Tables with rows in an engine: their records, and the tasks that count the rows there."""
