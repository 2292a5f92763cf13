"""What is known from all releases about the same rows: least squares over what they measured, free of charge.

Nothing here can reach a private row: it imports neither the door nor what reads rows, and works on stored numbers.
"""
