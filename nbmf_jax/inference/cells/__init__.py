"""How the cells of a matrix get their labels: one file a model, and how cells are visited."""
