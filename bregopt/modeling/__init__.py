"""The modeling layer: variables, expressions, atoms, constraints, objectives, problems."""
