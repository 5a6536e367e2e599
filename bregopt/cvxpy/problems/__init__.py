"""CVXPY problems, read as they were written: no cone is made of an atom that is a divergence."""
