"""Eigenvalue kernels of the matrix exponential: divided differences and the secular equation."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from bregopt.arrays import EPS, Array

__all__ = ["exp_divided_differences", "rank_one_spectrum"]


def exp_divided_differences(theta: Array) -> Array:
    """Return ``(e^a - e^b)/(a - b)`` for all pairs of `theta`, stable where ``a`` and ``b`` are close.

    To avoid overflow, shift `theta` to be at most zero. Of a stack of shape ``(..., n)`` the pairs of each.
    """
    left, right = theta[..., :, None], theta[..., None, :]
    gap = np.abs(left - right)
    top = np.exp(np.maximum(left, right))
    close = gap < 1e-8
    return top * np.where(close, 1 - gap / 2, -np.expm1(-gap) / np.where(close, 1.0, gap))


def rank_one_spectrum(theta: Array, w: Array, alpha: float) -> tuple[Array, Array]:
    """Return the eigenvalues of ``diag(theta) + alpha w w'`` with ``w'q`` not zero, and ``(w'q)^2`` for each.

    The eigenvalues are the roots of the secular equation ``1 + alpha sum_j w_j^2 / (theta_j - x) = 0``.
    LAPACK's ``dlaed4`` finds them one by one and returns the differences ``theta_j - x`` to full relative
    precision. The weights follow from them (Golub 1973). Eigenvalues whose vectors ``q`` are orthogonal to
    `w` are left out: they do not change and have weight zero.

    Parameters
    ----------
    theta : array of shape (r,), ascending
    w : array of shape (r,)
    alpha : float
    """
    if alpha < 0:
        roots, weight = rank_one_spectrum(-theta[::-1], w[::-1], -alpha)
        return -roots[::-1], weight[::-1]
    pole, square = _merged_poles(theta, w)
    total = float(square.sum())
    if alpha * total <= 4 * EPS * np.abs(pole).max(initial=1e-300) or len(pole) == 0:
        return pole + alpha * square, square
    difference = _secular_differences(pole, np.sqrt(square / total), alpha * total)
    weight = 1 / (alpha**2 * (square / difference**2).sum(axis=1))
    return pole - np.diagonal(difference), weight


def _merged_poles(theta: Array, w: Array) -> tuple[Array, Array]:
    """Return the distinct poles of nonzero weight; poles closer than round-off count as one."""
    square = w * w
    total = square.sum()
    seen = square > (EPS**2) * total
    theta, square = theta[seen], square[seen]
    if len(theta) < 2:
        return theta, square
    apart = np.diff(theta) > 8 * EPS * np.abs(theta).max()
    if apart.all():
        return theta, square
    group = np.concatenate([[0], np.cumsum(apart)])
    return theta[np.concatenate([[True], apart])], np.bincount(group, weights=square).astype(float)


def _secular_differences(pole: Array, unit: Array, rho: float) -> Array:
    """Return the matrix ``pole_j - x_i`` over the roots ``x_i`` of ``diag(pole) + rho unit unit'``."""
    count = len(pole)
    if count == 1:
        return np.array([[-rho]])
    if count == 2:  # here dlaed4 would return eigenvectors instead of differences
        return _two_pole_differences(pole, unit, rho)
    dlaed4 = _dlaed4()
    pole, unit = np.ascontiguousarray(pole), np.ascontiguousarray(unit)
    difference = np.empty((count, count))
    n, i, info = ctypes.c_int(count), ctypes.c_int(), ctypes.c_int()
    strength, root = ctypes.c_double(rho), ctypes.c_double()
    at, stride = difference.ctypes.data, difference.strides[0]
    by = ctypes.byref
    d, z = ctypes.c_void_p(pole.ctypes.data), ctypes.c_void_p(unit.ctypes.data)
    for k in range(count):
        i.value = k + 1
        dlaed4(by(n), by(i), d, z, ctypes.c_void_p(at + k * stride), by(strength), by(root), by(info))
        if info.value:
            difference[k] = pole - np.linalg.eigvalsh(np.diag(pole) + rho * np.outer(unit, unit))[k]
    return difference


def _two_pole_differences(pole: Array, unit: Array, rho: float) -> Array:
    """Return the differences for two poles from the quadratic, without cancellation."""
    gap = pole[1] - pole[0]
    first, second = rho * unit**2
    half = (first + second - gap) / 2
    radius = np.hypot(half, np.sqrt(second * gap))
    # The upper root is `beyond` above the upper pole; the lower one `above` its own pole, `below` the upper.
    beyond = half + radius if half > 0 else second * gap / (radius - half)
    below = second * gap / (radius + half) if half > 0 else radius - half
    above = first * gap / (half + gap + radius)
    return np.array([[-above, below], [-(gap + beyond), -beyond]])


@cache
def _dlaed4() -> Any:
    """Return LAPACK's dlaed4 as scipy exports it for Cython, callable through ctypes."""
    capsule = cython_lapack.__pyx_capi__["dlaed4"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 8)(pointer(capsule, name(capsule)))
