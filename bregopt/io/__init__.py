"""Files and tables: SDPA, specifications, matrices, graphs, labels of pandas."""
