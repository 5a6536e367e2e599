"""What a user declares: variables, expressions, atoms, constraints, objectives, problems."""
