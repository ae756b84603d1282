"""How the cells of a matrix are labelled, counted and visited.

A model has three files: `x_tables` (counters and conditional), `x` (labels and moves) and
`expected_x` (expected labels).
"""
