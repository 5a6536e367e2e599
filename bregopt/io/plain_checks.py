"""Checks of objects that were made from plain data: their shapes agree, and their indices exist.

The functions of the language make such objects right by construction. A file may say anything.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.modeling.affine import Affine, Product
from bregopt.modeling.complex_expressions import ComplexExpression
from bregopt.modeling.matrix_inequalities import MatrixInequality
from bregopt.modeling.psd import PSD
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import Parameter, Variable
from bregopt.program.rows import Bilinear, Coordinates, Rows

__all__ = ["check_object"]


def check_object(item: Any) -> None:
    """Raise a ValueError if the parts of an object do not agree."""
    if isinstance(item, Affine):
        _check_affine(item)
    elif isinstance(item, ComplexExpression):
        _expect(item.imag.shape, item.real.shape, "imag")
    elif isinstance(item, Product):
        _check_product(item)
    elif isinstance(item, SecondOrderConstraint):
        _check_cones(item)
    elif isinstance(item, MatrixInequality):
        _expect(item.body.shape, 2 * item.body.shape[:1], "body")
    elif isinstance(item, Bilinear):
        _check_bilinear(item)
    elif is_dataclass(item) and isinstance(item, Rows):
        _check_family(item)


def _check_affine(e: Affine) -> None:
    if not all(type(size) is int and size > 0 for size in e.shape):
        raise ValueError(f"shape is {list(e.shape)}; expected positive integers")
    _expect(e.constant.shape, (math.prod(e.shape),), "constant")
    for X, rows in e.psd.items():
        if not isinstance(X, PSD) or not isinstance(rows, Rows):
            raise TypeError(f"psd has {X!r} with {rows!r}; expected rows of psd variables")
        _expect((rows.m, rows.n), (e.size, X.n), f"the rows of {X.name}, (rows, order),")
    for kind, maps in ((Variable, e.variables), (Parameter, e.parameters)):
        for u, matrix in maps.items():
            if not isinstance(u, kind) or not sp.issparse(matrix):
                raise TypeError(f"{u!r} has {matrix!r}; expected a sparse matrix of a {kind.__name__}")
            _expect(matrix.shape, (e.size, u.size), f"the matrix of {u.name}")
            _check_finite(matrix, f"the matrix of {u.name}")
    for product in e.products:
        if not isinstance(product, Product):
            raise TypeError(f"products has {product!r}; expected products of parameters")
        _expect(product.weights.shape[:1], (e.size,), "weights")


def _check_product(product: Product) -> None:
    p, factor = product.parameter, product.factor
    if not isinstance(p, Parameter) or not isinstance(factor, Affine) or not sp.issparse(product.weights):
        raise TypeError(f"{product!r}: expected a parameter, an expression and a sparse matrix")
    if factor.constant.any() or factor.parameters or factor.products:
        raise ValueError("factor has constants or parameters; expected variables alone")
    _check_index(product.at, p.size, "at")
    _expect(product.at.shape, (factor.size,), "at")
    _expect(product.weights.shape[1:], (factor.size,), "weights")
    _check_finite(product.weights, "weights")


def _check_cones(cones: SecondOrderConstraint) -> None:
    if (cones.dimensions < 1).any() or cones.dimensions.sum() != cones.body.size:
        raise ValueError(f"dimensions are {cones.dimensions.tolist()}; expected a sum of {cones.body.size}")
    _expect(cones._of_bound.shape, (cones.body.size,), "of_bound")


def _check_family(rows: Any) -> None:
    """Check that every array of a family has a row for each of its `m`, and columns or indices up to `n`."""
    m, n = rows.m, rows.n
    for field in fields(rows):
        part = getattr(rows, field.name)
        if isinstance(part, Coordinates):
            _check_terms(part, m, n)
        elif isinstance(part, np.ndarray) and part.dtype.kind == "i":
            _expect(part.shape, (m,), field.name)
            _check_index(part, n, field.name)
        elif isinstance(part, np.ndarray) or sp.issparse(part):
            _expect(part.shape, (m, *(n for _ in part.shape[1:])), field.name)
            _check_finite(part, field.name)
            if len(part.shape) == 3 and (part != part.transpose(0, 2, 1)).any():
                raise ValueError(f"{field.name} has a matrix that is not symmetric")


def _check_bilinear(rows: Bilinear) -> None:
    for name, factor, index in (("L", rows.L, rows.i), ("R", rows.R, rows.j)):
        _expect(factor.shape[1:], (rows.n,), name)
        _check_finite(factor, name)
        _expect(index.shape, (rows.m,), f"the index of {name}")
        _check_index(index, factor.shape[0], f"the index of {name}")
    _expect(rows.weight.shape, (rows.m,), "weight")
    _check_finite(rows.weight, "weight")


def _check_terms(t: Coordinates, m: int, n: int) -> None:
    for name, part in (("i", t.i), ("j", t.j), ("value", t.value)):
        _expect(part.shape, t.row.shape, name)
    for index, limit, name in ((t.row, m, "row"), (t.i, n, "i"), (t.j, n, "j")):
        _check_index(index, limit, name)
    if (np.diff(t.row) < 0).any():
        raise ValueError("row is not ascending")
    _check_finite(t.value, "value")


def _check_index(index: Any, limit: int, name: str) -> None:
    outside = index[(index < 0) | (index >= limit)]
    if len(outside):
        raise ValueError(f"{name} has {int(outside[0])}; expected 0 to {limit - 1}")


def _check_finite(matrix: Any, name: str) -> None:
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        raise ValueError(f"{name} has a NaN or Inf; expected finite numbers")


def _expect(found: tuple[int, ...], expected: tuple[int, ...], name: str) -> None:
    if tuple(found) != expected:
        raise ValueError(f"{name} has shape {tuple(found)}; expected {expected}")
