"""One kind of query a file: what it asks of counts, and how its answer is drawn."""
