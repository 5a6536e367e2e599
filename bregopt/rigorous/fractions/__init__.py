"""Proofs in fractions, on the boundary of the cone: by multipliers, by points, and in high precision."""
