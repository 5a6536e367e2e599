"""Largest cuts by branch and bound: reductions, both bounds, the tree, and the certificate of its leaves."""
