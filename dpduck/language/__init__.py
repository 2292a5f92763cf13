"""Translation of annotated SQL to a frozen Request. It never opens data."""
