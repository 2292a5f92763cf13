"""The annotated SELECT: keys, aggregates, prices, answers."""
