"""The von Neumann divergence for online learning, and exponentials with a given trace."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array
from bregopt.online.instances import hermitian

__all__ = ["add_instance", "exponential", "logarithm", "relative_entropy"]

_LARGEST = 700.0  # an exponent for which exp is still finite


def exponential(G: Array, trace: float | None = None) -> Array:
    """Return ``exp(G)`` of a Hermitian ``G``, scaled to a trace if one is given.

    With a trace ``G`` may be of any size: the largest eigenvalue is subtracted before exponentials are taken
    (Tsuda et al. 2005, §3.2).

    Raises
    ------
    OverflowError
        Without a trace, if the exponential is too large for a number.
    """
    theta, V = np.linalg.eigh(G)
    if trace is None and theta[-1] > _LARGEST:
        raise OverflowError(f"the exponential of the eigenvalue {theta[-1]:g} overflows; lower eta")
    if trace is None:
        roots = np.exp(theta / 2)
    else:
        roots = np.exp((theta - theta[-1]) / 2)
        roots *= np.sqrt(trace / (roots @ roots))
    half = V * roots
    W: Array = half @ half.conj().T
    return hermitian(W) if np.iscomplexobj(W) else W  # a real product with its transpose is symmetric


def logarithm(W: Array) -> Array:
    """Return the logarithm of a Hermitian positive definite matrix."""
    w, V = np.linalg.eigh(W)
    return hermitian((V * np.log(w)) @ V.conj().T)


def add_instance(G: Array, step: float, x: Array) -> Array:
    """Return ``G + step X`` for an instance ``X``, or ``G + step x x'`` for a vector ``x``."""
    X = np.multiply.outer(x, x.conj()) if x.ndim == 1 else x
    sum_: Array = G + step * X
    return sum_


def relative_entropy(U: Array, W: Array) -> float:
    """Return ``tr(U log U - U log W - U + W)``; ``U`` may be singular, ``W`` is positive definite."""
    u = np.linalg.eigvalsh(U)
    positive = u[u > 0]
    cross = float(np.vdot(logarithm(W), U).real)
    return float(positive @ np.log(positive)) - cross - float(np.trace(U).real) + float(np.trace(W).real)
