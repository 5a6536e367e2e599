"""Bounds that are theorems: every rounding of the proof is bounded, so that no optimum lies outside them."""
