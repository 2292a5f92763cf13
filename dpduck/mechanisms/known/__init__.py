"""Answers from all releases about the same rows: least squares over their measurements, free of charge.

- axes, tables, chosen_tables, answer: stored numbers become answers.
- cells, known_table, margins: answers become tables of cells, rows of dp_known, and margins of SAMPLE FROM KNOWN.
- given, reuse: plans of a release beside earlier ones, for reuse = TRUE.
- statements: dp_known, REFRESH PRIVATE VIEW and reuse = TRUE, which use all other files.

No module that computes answers can reach a private row: none imports the door or a reader of rows.
"""
