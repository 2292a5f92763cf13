"""Answers from all releases about the same rows: least squares over their measurements, free of charge.

axes, tables, chosen_tables, answer: stored numbers become answers.
cells, known_table, margins: answers become tables of cells, rows of dp_known, and margins of SAMPLE FROM KNOWN.
given, reuse, statements: plans beside earlier releases, and the statements that use them.

No module that computes answers can reach a private row: none imports the door or a reader of rows.
"""
