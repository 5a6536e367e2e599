"""From a declared problem to a program, and from its answer back."""
