"""Expressions of the modeling language written as text, evaluated without running any Python.

The module :mod:`ast` parses the text, and only the nodes and functions named here are evaluated. Everything
else (other attributes, lambdas, comprehensions, f-strings, assignments, other names) is refused with its
place in the text.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import finite_array
from bregopt.errors import did_you_mean
from bregopt.modeling.affine import Named
from bregopt.modeling.atoms import diag, inner, quad_form, sq_distance, sum, trace
from bregopt.modeling.block_matrices import bmat, hstack, kron, partial_trace, partial_transpose, vstack
from bregopt.modeling.complex_expressions import conj, imag, real
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex import elementwise
from bregopt.modeling.convex.eigenvalues import (
    lambda_max,
    lambda_min,
    lambda_sum_largest,
    log_det,
    norm_nuc,
    sigma_max,
)
from bregopt.modeling.convex.elementwise import log, maximum, minimum, pos, square
from bregopt.modeling.convex.expression import as_curved
from bregopt.modeling.convex.norms import norm1, norm2, norm_inf, quad_over_lin, sum_squares
from bregopt.modeling.expressions import Operand, between, soft
from bregopt.modeling.objectives import bregman_div, frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.problem import Declared
from bregopt.program.rows.base import LowRank

_ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_COMPARISONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_INEQUALITIES: dict[type[ast.AST], Callable[..., Any]] = {
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_ATTRIBUTES = ("T", "H", "real", "imag")
_LARGEST = {int: 2**63 - 1, float: sys.float_info.max}  # the largest constants that are read


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression of the modeling language.

    Parameters
    ----------
    text : str
        Numbers, also complex ones, names, lists, ``+ - * / @``, subscripts, the attributes ``T``, ``H``,
        ``real`` and ``imag``, one comparison (``<=``, ``>=``, ``==``, ``>>``, ``<<``) and calls of
        :data:`~bregopt.io.evaluate.FUNCTIONS`, with keywords; strings only as values of keywords.
    names : mapping from str to object
        Variables, and data: numbers, arrays, sparse arrays, ``LowRank``.

    Returns
    -------
    object
        An expression, an objective, a constraint, or numbers.

    Raises
    ------
    ValueError, TypeError
        If the text contains anything else, or a function refuses its arguments; the message ends with the
        text and a mark under the place.

    Examples
    --------
    >>> import bregopt as bo
    >>> evaluate("diag(X) == 1", {"X": bo.PSD(3, name="X")})
    Constraint(diag(X) == 1, rows=3)
    """
    line = " ".join(text.split())
    if not line:
        raise ValueError("the expression is empty")
    try:
        return _Evaluator(line, names).visit(_parsed(line))
    except (RecursionError, MemoryError):
        raise ValueError(f"the expression is nested too deeply: {line[:60]}...") from None


def _parsed(line: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # text that Python only warns of, such as "1if", is refused
            return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        column = min(error.offset or 1, len(line) + 1)
        raise ValueError(_pointed(line, column, f"not an expression: {error.msg}")) from None
    except ValueError as error:
        raise ValueError(_pointed(line, 1, f"not an expression: {error}")) from None


class _Evaluator(ast.NodeVisitor):
    """An evaluator whose ``visit`` methods are the list of allowed nodes."""

    def __init__(self, line: str, names: Mapping[str, Any]) -> None:
        self._line, self._names = line, names

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self._refuse(node, f"{type(node).__name__} is not part of the language of expressions")

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in FUNCTIONS:
            self._refuse(node, f"{node.id} is a function: write {node.id}(...)")
        if node.id not in self._names:
            self._refuse(node, f"name {node.id!r} is not known{did_you_mean(node.id, self._names)}")
        return self._names[node.id]

    def visit_Constant(self, node: ast.Constant) -> int | float | complex:
        value = node.value
        if isinstance(value, str):
            self._refuse(node, 'a string is only for keywords, such as penalty="hinge"')
        if isinstance(value, bool) or not isinstance(value, int | float | complex):
            self._refuse(node, "expected a finite number")
        size = value.imag if isinstance(value, complex) else value
        if size > _LARGEST[type(size)]:
            self._refuse(node, "expected a finite number")
        return value

    def visit_List(self, node: ast.List) -> Any:
        items = [self.visit(item) for item in node.elts]
        for item, part in zip(items, node.elts, strict=True):
            if not (_is_numbers(item) or isinstance(item, Operand | list)):
                self._refuse(part, "a list holds numbers, matrices and expressions")
        if any(sp.issparse(item) or isinstance(item, Operand | list) for item in items):
            return items  # for functions of several matrices or expressions
        return self._apply(node, np.array, items)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        known = node.attr in _ATTRIBUTES and hasattr(type(value), node.attr)
        if not known or not (isinstance(value, Operand) or _is_numbers(value)):
            self._refuse(
                node,
                "Attribute is not part of the language of expressions, but for .T, and for .H, .real and "
                ".imag of complex ones",
            )
        return self._apply(node, getattr, value, node.attr)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self._computed(node, node.op, node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        if type(node.op) in _INEQUALITIES:
            left, right = self.visit(node.left), self.visit(node.right)
            if not any(isinstance(side, Operand) for side in (left, right)):
                self._refuse(node, "a matrix inequality needs an expression on at least one side")
            return self._apply(node, _INEQUALITIES[type(node.op)], left, right)
        return self._computed(node, node.op, node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> Declared:
        if len(node.ops) > 1:
            self._refuse(node, "a constraint has one comparison; two bounds are between(expr, lower, upper)")
        function = _COMPARISONS.get(type(node.ops[0]))
        if function is None:
            self._refuse(node, "a constraint compares with <=, >= or ==")
        left, right = self.visit(node.left), self.visit(node.comparators[0])
        if not any(isinstance(side, Operand) for side in (left, right)):
            self._refuse(node, "a constraint needs an affine expression of a variable on at least one side")
        constraint: Declared = self._apply(node, function, left, right)
        return constraint

    def visit_Call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
            self._refuse(node, f"{name!r} is not a function here{did_you_mean(name, FUNCTIONS)}")
        arguments = [self.visit(argument) for argument in node.args]
        keywords: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                self._refuse(k.value, "** is not part of the language of expressions")
            text = isinstance(k.value, ast.Constant) and isinstance(k.value.value, str)
            keywords[k.arg] = k.value.value if text else self.visit(k.value)  # type: ignore[attr-defined]
        return self._apply(node, FUNCTIONS[node.func.id], *arguments, **keywords)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value = self.visit(node.value)
        if not (isinstance(value, Operand | LowRank) or _is_numbers(value)):
            self._refuse(node, f"a {type(value).__name__} has no entries")
        return self._apply(node, operator.getitem, value, self._index(node.slice))

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(part) for part in node.elts)
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(None if end is None else self.visit(end) for end in ends))
        index = self.visit(node)
        if np.asarray(index if _is_numbers(index) else "").dtype.kind not in "biu":
            self._refuse(node, "an index is an integer, an array of integers, or a slice")
        return index

    def _computed(self, node: ast.expr, op: ast.AST, *operands: ast.expr) -> Any:
        function = _ARITHMETIC.get(type(op))
        if function is None:
            self._refuse(node, "the arithmetic of expressions is + - * / @")
        values = [self.visit(operand) for operand in operands]
        if any(isinstance(value, list) for value in values):
            self._refuse(node, "a list of matrices or expressions takes no arithmetic")
        return self._apply(node, function, *values)

    def _apply(self, node: ast.AST, function: Callable[..., Any], *values: Any, **keywords: Any) -> Any:
        """Call a function of ours on checked values; its errors get the place in the text."""
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                return function(*values, **keywords)
        except TypeError as error:
            raise TypeError(self._at(node, str(error))) from error
        except (ValueError, ArithmeticError, IndexError, NotImplementedError, MemoryError) as error:
            raise ValueError(self._at(node, str(error))) from error

    def _refuse(self, node: ast.AST, message: str) -> NoReturn:
        raise ValueError(self._at(node, message))

    def _at(self, node: Any, message: str) -> str:
        # ast counts columns in bytes of UTF-8
        before = self._line.encode()[: getattr(node, "col_offset", 0)].decode()
        return _pointed(self._line, len(before) + 1, message)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.ndarray | np.number) or sp.issparse(value)


def _pointed(line: str, column: int, message: str) -> str:
    return f"{message}\n    {line}\n    {' ' * (column - 1)}^ column {column}"


def named(constraint: Any, name: str) -> Any:
    """Give a constraint a name, and return it."""
    if not isinstance(constraint, Named):
        raise TypeError(f"{constraint!r} is no constraint; expected one to be named")
    return constraint.named(name)


def labeled(constraint: Any, *axes: Any) -> Any:
    """Give the rows of a constraint labels, one array for each axis, and return it."""
    if not isinstance(constraint, Constraint):
        raise TypeError(f"{constraint!r} has no rows; expected a comparison of affine expressions")
    found = tuple(np.size(axis) for axis in axes)
    if found != constraint.shape:
        raise ValueError(f"{found} labels for rows of shape {constraint.shape}; expected one for each")
    constraint.axes = tuple(np.ravel(axis).tolist() for axis in axes)
    return constraint


def linear_map(matrix: Any, e: Any, shape: Any = ()) -> Any:
    """Return the array of a shape whose elements are `matrix` times those of `e`, both row by row."""
    given = as_curved(e)
    S = sp.csr_array(matrix, dtype=float)
    finite_array(S.data, "matrix of linear_map")
    sizes = tuple(np.atleast_1d(shape).tolist())
    if S.shape != (math.prod(sizes), given.size):
        raise ValueError(
            f"matrix of linear_map has shape {S.shape}; expected {math.prod(sizes)} x {given.size}, the "
            f"elements of {sizes} and of {given.label}"
        )
    return given.combined(S, sizes)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(LowRank, elementwise.abs, between, bmat, bregman_div, conj, diag, frobenius_div, hstack),
        *(imag, inner, kron, labeled, lambda_max, lambda_min, lambda_sum_largest, linear_map, log),
        *(log_det, named, logdet_div, elementwise.max, maximum, elementwise.min, minimum, norm1),
        *(norm2, norm_inf, norm_nuc, partial_trace, partial_transpose, pos, quad_form),
        *(quad_over_lin, real, sigma_max, soft, sq_distance, square, sum, sum_squares, trace),
        *(vstack, von_neumann_div),
    )
}
