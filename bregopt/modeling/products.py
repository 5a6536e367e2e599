"""Products of parameters and affine expressions, elementwise and of matrices.

The rule is that of disciplined parametrized programming (DPP; Agrawal et al. 2019, Differentiable Convex
Optimization Layers, section 4.1): one factor is affine in parameters and holds no variable, the other one
holds no parameter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from bregopt.modeling.affine import Affine, Product

__all__ = ["factor_label", "matrix_product", "product"]

A = TypeVar("A", bound=Affine)


def product(left: A, right: A) -> A:
    """Return ``left * right``, elementwise, broadcast as NumPy does.

    Raises
    ------
    TypeError
        If both factors hold a variable, or both a parameter.
    """
    _check_factors(left, right, "*")
    shape = np.broadcast_shapes(left.shape, right.shape)
    label = f"{factor_label(left)} * {factor_label(right)}"
    return replace(_product(left.broadcast_to(shape), right.broadcast_to(shape)), label=label)


def matrix_product(left: A, right: A) -> A:
    """Return ``left @ right``.

    Raises
    ------
    TypeError
        If both factors hold a variable, or both a parameter.
    ValueError
        If the shapes do not go together.
    """
    _check_factors(left, right, "@")
    if not {len(left.shape), len(right.shape)} <= {1, 2} or left.shape[-1] != right.shape[0]:
        raise ValueError(
            f"@ of shapes {left.shape} and {right.shape}; expected vectors and matrices of which the last "
            "axis of the first is as long as the first axis of the second"
        )
    q = right.shape[0]
    p, r = left.size // q, right.size // q
    first = replace(left, shape=(p, q, 1)).broadcast_to((p, q, r))
    second = replace(right, shape=(1, q, r)).broadcast_to((p, q, r))
    label = f"{factor_label(left)} @ {factor_label(right)}"
    return replace(_product(first, second).summed(1), shape=left.shape[:-1] + right.shape[1:], label=label)


def _check_factors(left: Affine, right: Affine, sign: str) -> None:
    written = f"{factor_label(left)} {sign} {factor_label(right)}"
    if not left.is_constant and not right.is_constant:
        raise TypeError(
            f"{written} is a product of two expressions with variables, which is not affine; expected "
            "numbers or parameters on one side (z'X z is bo.quad_form(z, X))"
        )
    if left.operands("parameters") and right.operands("parameters"):
        raise TypeError(
            f"{written} is a product of two expressions with parameters; by the rules of disciplined "
            "parametrized programming (DPP) one factor must be without: declare one bo.Parameter for the "
            "product of the two, and set its value"
        )


def _product(left: A, right: A) -> A:
    """Return the elementwise product of two arrays of one shape."""
    constant, e = (left, right) if left.is_constant and not right.operands("parameters") else (right, left)
    if not constant.is_constant:
        constant, e = e, constant
    if not constant.parameters:
        return e.times(constant.constant.reshape(constant.shape))
    total = type(e)(e.shape, np.zeros(e.size))
    if constant.constant.any():
        total = e.times(constant.constant.reshape(constant.shape))
    for parameter, slope in constant.parameters.items():
        coo = sp.coo_array(slope)
        row, at = coo.coords
        own = sp.csr_array((coo.data * e.constant[row], (row, at)), slope.shape)
        own.eliminate_zeros()
        part = type(e)(e.shape, np.zeros(e.size), parameters={parameter: own} if own.nnz else {})
        if not e.is_constant:
            factor = e.taken(row, (len(row),), e.label).variable_part()
            weights = sp.csr_array((coo.data, (row, np.arange(len(row)))), (e.size, len(row)))
            part = replace(part, products=(Product(parameter, at, factor, weights),))
        total = total.plus(part)
    return total


def factor_label(e: Affine) -> str:
    """Return the label of an array, in parentheses where it is a sum."""
    compound = any(sign in e.label for sign in (" + ", " - ", " * ")) or e.label.startswith("-")
    return f"({e.label})" if compound else e.label
