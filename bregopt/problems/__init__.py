"""Ready-made problems, each a few lines of the DSL around a check of its input."""
