"""Answers from all releases about the same rows: least squares over their measurements, free of charge.

No module here can reach a private row: none imports the door or a reader of rows, and all work on stored numbers.
"""
