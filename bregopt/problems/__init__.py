"""Ready-made problems: each checks its input and is a few lines of the modeling language."""
