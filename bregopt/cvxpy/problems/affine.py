"""Affine CVXPY expressions as rows of coefficients, read from the expression tree as it was written.

A row is a weighted sum of elements of an expression. Each atom replaces its elements by elements of its
arguments, from the root down to the variables. Nothing is canonicalized and no Kronecker product is formed:
an entry of a matrix costs the same whatever the order of the matrix. Elements are numbered by columns.

Each kind of atom has one function below; tables map the atoms' names to them. For all other atoms CVXPY
computes the Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.atom import Atom
from cvxpy.expressions.leaf import Leaf

from bregopt.arrays import Array, IntArray
from bregopt.errors import UnsupportedProblemError
from bregopt.linalg import csr_of
from bregopt.records import dataclass

# Occurrences of an expression's elements, on average, above which each is read once and sums are formed.
_REPEATED = 4


class Elements(NamedTuple):
    """Weighted elements of an expression: row ``row[k]`` holds ``weight[k]`` times element ``at[k]``."""

    row: IntArray
    at: IntArray
    weight: Array

    def moved(self, at: IntArray) -> Elements:
        """Return the same rows and weights on the elements `at` of an argument."""
        return Elements(self.row, at, self.weight)

    def times(self, weight: Any) -> Elements:
        """Return the elements with their weights multiplied."""
        return Elements(self.row, self.at, self.weight * weight)

    def taken(self, k: IntArray, at: IntArray, weight: Any) -> Elements:
        """Return ``weight[l]`` times element ``at[l]`` of an argument for element ``k[l]``, for all ``l``."""
        return Elements(self.row[k], at, self.weight[k] * weight)


class Quadratics(NamedTuple):
    """Row ``row[k]`` holds ``weight[k] z_k'X z_k``; the ``z_k`` are the rows of `Z`."""

    row: IntArray
    Z: Array
    weight: Array

    def elements(self) -> Elements:
        """Return the forms term by term."""
        m, n = self.Z.shape
        weight = (self.weight[:, None, None] * self.Z[:, :, None] * self.Z[:, None, :]).ravel()
        return Elements(np.repeat(self.row, n * n), np.tile(np.arange(n * n), m), weight)


@dataclass(frozen=True, eq=False)
class ConvexTerm:
    """Weighted elements of an atom in an objective that is not affine."""

    name: str
    atom: Any
    elements: Elements


@dataclass(eq=False)
class Coefficients:
    """The coefficients of `m` rows: constants, and weighted elements of variables and parameters.

    Parameters
    ----------
    m : int
    constant : array of shape (m,)
    elements : dict from cvxpy.Variable to list of Elements
    quadratics : dict from cvxpy.Variable to list of Quadratics
        Quadratic forms of symmetric variables.
    convex_terms : list of ConvexTerm, or None if everything must be affine
    parameters : dict from cvxpy.Parameter to list of Elements, or None if their values are substituted
        Parameters that are added to the rows.
    frozen : set of cvxpy.Parameter
        Parameters whose values are substituted, because they are factors or arguments of other atoms.
    """

    m: int
    constant: Array
    elements: dict[Any, list[Elements]] = field(default_factory=dict)
    quadratics: dict[Any, list[Quadratics]] = field(default_factory=dict)
    convex_terms: list[ConvexTerm] | None = None
    parameters: dict[Any, list[Elements]] | None = None
    frozen: set[Any] = field(default_factory=set)

    @property
    def variables(self) -> list[Any]:
        """The variables of the rows, each once."""
        return list(dict.fromkeys([*self.elements, *self.quadratics]))

    def numbers(self, expression: Any, keep_sparse: bool = False) -> Any:
        """Return the value of a constant expression; its parameters become `frozen`."""
        self.frozen.update(expression.parameters())
        return constant_value(expression, keep_sparse)

    def gathered(self, place: IntArray, share: Array, m: int) -> Coefficients:
        """Return `m` sums of these rows: row ``k``, times its share, goes to a place, or nowhere from -1.

        There are no quadratic forms.
        """

        def of(known: dict[Any, list[Elements]]) -> dict[Any, list[Elements]]:
            found = {}
            for leaf, parts in known.items():
                row, at, weight = joined(parts)
                kept = place[row] >= 0
                found[leaf] = [Elements(place[row[kept]], at[kept], (weight * share[row])[kept])]
            return found

        kept = place >= 0
        constant = np.bincount(place[kept], (share * self.constant)[kept], m).astype(float, copy=False)
        parameters = None if self.parameters is None else of(self.parameters)
        return Coefficients(m, constant, of(self.elements), parameters=parameters, frozen=self.frozen)

    def add_constant(self, elements: Elements, value: Array) -> None:
        """Add weighted elements of a constant expression, whose values are given by columns."""
        self.constant += np.bincount(elements.row, elements.weight * value[elements.at], self.m)


def elements_at(at: IntArray) -> Elements:
    """Return a row for each of some elements."""
    return Elements(np.arange(len(at)), at, np.ones(len(at)))


def every_element(expression: Any) -> Elements:
    """Return a row for each element of an expression, by columns."""
    return elements_at(np.arange(expression.size))


def one_number(expression: Any) -> float:
    """Return the value of a constant scalar expression."""
    return float(constant_value(expression).ravel()[0])


def broadcast(argument: Any, shape: tuple[int, ...], at: IntArray) -> IntArray:
    """Return the elements of an argument at the elements `at` of the shape that it is broadcast to."""
    if argument.shape == shape:
        return at
    numbers = np.arange(argument.size).reshape(argument.shape, order="F")
    return np.broadcast_to(numbers, shape).ravel(order="F")[at]


def constant_value(expression: Any, keep_sparse: bool = False) -> Any:
    """Return the value of a constant expression as an array; `keep_sparse` keeps a sparse value sparse."""
    value = expression.value
    if value is None:
        names = ", ".join(p.name() for p in expression.parameters() if p.value is None)
        raise ValueError(f"parameter {names} of the CVXPY problem has no value; set .value before solving")
    if np.iscomplexobj(value.data if sp.issparse(value) else value):
        raise UnsupportedProblemError("it has complex numbers")
    if sp.issparse(value):
        return value if keep_sparse else value.toarray()
    return np.asarray(value, dtype=float)


def joined(parts: Sequence[Elements]) -> tuple[IntArray, IntArray, Array]:
    """Return the concatenated rows, elements and weights of several collections."""
    if len(parts) == 1:  # most variables occur once
        (own,) = parts
        return own.row.copy(), own.at.copy(), own.weight.copy()
    row, at, weight = map(np.concatenate, zip(*parts, strict=True))
    return row, at, weight


def rows_of(
    expression: Any,
    elements: Elements | None = None,
    m: int | None = None,
    convex: bool = False,
    parametric: bool = False,
) -> Coefficients:
    """Return the coefficients of rows of an expression.

    Parameters
    ----------
    expression : cvxpy.Expression
    elements : Elements, optional
        The elements of each row; by default each element is a row.
    m : int, optional
        The number of rows, by default the size of the expression.
    convex : bool
        Whether to collect atoms that are not affine; otherwise they are refused.
    parametric : bool
        Whether to collect parameters that are added; otherwise their values are substituted.

    Raises
    ------
    UnsupportedProblemError
        If an atom is not affine, or a number is not finite.
    ValueError
        If a parameter has no value.
    """
    m = expression.size if m is None else m
    elements = every_element(expression) if elements is None else elements
    return joint_rows([(expression, elements)], m, convex, parametric)


def joint_rows(
    parts: Sequence[tuple[Any, Elements]], m: int, convex: bool = False, parametric: bool = False
) -> Coefficients:
    """Return the coefficients of `m` rows that contain elements of several expressions.

    Parameters and errors are those of :func:`rows_of`.
    """
    rows = Coefficients(
        m, np.zeros(m), convex_terms=[] if convex else None, parameters={} if parametric else None
    )
    for expression, elements in parts:
        _read(expression, elements, rows)
    weights = [e.weight for parts in rows.elements.values() for e in parts]
    if not all(np.isfinite(part).all() for part in (rows.constant, *weights)):
        raise UnsupportedProblemError("NaN or Inf among its numbers")
    return rows


def _read(atom: Any, elements: Elements, rows: Coefficients) -> None:
    if not len(elements.at):
        return
    rule = _rule(atom)
    if isinstance(atom, cp.Variable):
        rows.elements.setdefault(atom, []).append(elements)
    elif isinstance(atom, cp.Parameter) and rows.parameters is not None:
        rows.parameters.setdefault(atom, []).append(elements)
    elif atom.is_constant() and (rows.parameters is None or rule is _by_jacobian or _is_fixed(atom)):
        rows.add_constant(elements, rows.numbers(atom).ravel(order="F"))
    elif not (len(elements.at) > _REPEATED * atom.size and _summed_up(atom, elements, rows)):
        rule(atom, elements, rows)


def _summed_up(atom: Any, elements: Elements, rows: Coefficients) -> bool:
    """Read an affine expression whose elements occur often: each once, and then their weighted sums.

    Term by term, ``A.T @ diag(u) @ A`` would be as many terms as it has elements times the square of the
    length of ``u``. Forms ``z'X z`` are left to the rules, which store them by their vectors.
    """
    if rows.convex_terms is not None and not is_affine(atom):
        return False
    own = Coefficients(atom.size, np.zeros(atom.size), parameters=None if rows.parameters is None else {})
    _read(atom, every_element(atom), own)
    if own.quadratics:
        return False
    rows.frozen.update(own.frozen)
    rows.add_constant(elements, own.constant)
    for known, found in ((rows.elements, own.elements), (rows.parameters, own.parameters)):
        for leaf, parts in ({} if found is None else found).items():
            assert known is not None
            known.setdefault(leaf, []).append(_composed(elements, parts, rows.m, atom.size, leaf.size))
    return True


def _composed(elements: Elements, parts: Sequence[Elements], m: int, size: int, leaf_size: int) -> Elements:
    """Return `m` rows of an expression's elements, which `parts` have as rows of a leaf, in that leaf."""
    row, at, weight = joined(parts)
    if len(row) <= size and len(set(row.tolist())) == len(row):  # one term for each element: no sums
        term = np.full(size, -1)
        term[row] = np.arange(len(row))
        chosen = term[elements.at]
        k = np.flatnonzero(chosen >= 0)
        return elements.taken(k, at[chosen[k]], weight[chosen[k]])
    weights = csr_of(elements.weight, elements.row, elements.at, (m, size))
    total = (weights @ csr_of(weight, row, at, (size, leaf_size))).tocoo()
    return Elements(total.row.astype(np.intp), total.col.astype(np.intp), total.data)


def scalar_terms(atom: Any) -> list[tuple[Any, int, float]] | None:
    """Return a scalar expression as terms: a variable or constant, an element of it and its weight.

    None if it is more than a sum of elements times numbers. There are no arrays here, as an array of one
    number takes as long as one of a thousand.
    """
    terms: list[tuple[Any, int, float]] = []
    return terms if _has_terms(atom, 1.0, terms) else None


def _has_terms(atom: Any, weight: float, terms: list[tuple[Any, int, float]]) -> bool:
    """Append the terms of a scalar expression; False if it has others."""
    name = type(atom).__name__
    if name == "AddExpression":
        return all(_has_terms(argument, weight, terms) for argument in atom.args)
    if name == "NegExpression":
        return _has_terms(atom.args[0], -weight, terms)
    if name in ("multiply", "DivExpression"):
        argument, factor = atom.args
        if name == "multiply" and isinstance(argument, cp.Constant):
            argument, factor = factor, argument
        number = one_number(factor) if isinstance(factor, cp.Constant) else 0.0
        scaled = number if name == "multiply" else 1 / (number or np.inf)
        return number != 0 and _has_terms(argument, weight * scaled, terms)
    at = 0
    while type(atom).__name__ == "index" and _is_slice(atom):
        at, atom = _in_slice(atom, at), atom.args[0]
    terms.append((atom, at, weight))
    return isinstance(atom, cp.Variable | cp.Constant)


def _added(atom: Any, elements: Elements, rows: Coefficients) -> None:
    for argument in atom.args:
        _read(argument, elements.moved(broadcast(argument, atom.shape, elements.at)), rows)


def _negated(atom: Any, elements: Elements, rows: Coefficients) -> None:
    _read(atom.args[0], elements.times(-1.0), rows)


def _indexed(atom: Any, elements: Elements, rows: Coefficients) -> None:
    """Apply a slice by arithmetic on element numbers: no array of the size of the matrix is made."""
    if not _is_slice(atom):
        return _moved(atom, elements, rows)
    return _read(atom.args[0], elements.moved(_in_slice(atom, elements.at)), rows)


def _is_slice(atom: Any) -> bool:
    """Whether an index has a range for each axis."""
    key = atom.key
    return len(key) == len(atom.args[0].shape) and None not in key


def _in_slice(atom: Any, at: Any) -> Any:
    """Return the elements of the argument at the elements of a slice, which are numbers or an array."""
    place, stride = 0, 1
    for part, n in zip(atom.key, atom.args[0].shape, strict=True):
        span = range(part.start, part.stop, part.step)
        at, here = divmod(at, len(span))
        place += (span.start + span.step * here) * stride
        stride *= n
    return place


def _moved(atom: Any, elements: Elements, rows: Coefficients) -> None:
    """Apply an atom that only moves elements: evaluate it at element numbers from one; zero means none."""
    ends = np.cumsum([0, *(argument.size for argument in atom.args)])
    numbers = [
        np.arange(start + 1.0, start + argument.size + 1).reshape(argument.shape, order="F")
        for start, argument in zip(ends, atom.args, strict=False)
    ]
    moved = np.asarray(atom.numeric(numbers), dtype=float).ravel(order="F")
    at = moved[elements.at].astype(np.intp) - 1
    for start, end, argument in zip(ends, ends[1:], atom.args, strict=False):
        k = np.flatnonzero((at >= start) & (at < end))
        _read(argument, elements.taken(k, at[k] - start, 1.0), rows)


def _unchanged(atom: Any, elements: Elements, rows: Coefficients) -> None:
    _read(atom.args[0], elements, rows)


def _reshaped(atom: Any, elements: Elements, rows: Coefficients) -> None:
    (_unchanged if atom.order == "F" else _moved)(atom, elements, rows)


def _transposed(atom: Any, elements: Elements, rows: Coefficients) -> None:
    if len(atom.shape) != 2 or atom.axes is not None:
        return _moved(atom, elements, rows)
    j, i = np.divmod(elements.at, atom.shape[0])
    return _read(atom.args[0], elements.moved(j + atom.shape[1] * i), rows)


def _promoted(atom: Any, elements: Elements, rows: Coefficients) -> None:
    _read(atom.args[0], elements.moved(np.zeros(len(elements.at), dtype=np.intp)), rows)


def _summed(atom: Any, elements: Elements, rows: Coefficients) -> None:
    argument = atom.args[0]
    given = np.arange(argument.ndim) if atom.axis is None else np.atleast_1d(atom.axis)
    axes = [int(axis) % argument.ndim for axis in given]
    numbers = np.arange(argument.size).reshape(argument.shape, order="F")
    members = np.moveaxis(numbers, axes, range(-len(axes), 0)).reshape(atom.size, -1, order="F")
    _gathered(argument, elements, members, rows)


def _traced(atom: Any, elements: Elements, rows: Coefficients) -> None:
    n = atom.args[0].shape[0]
    _gathered(atom.args[0], elements, np.arange(n)[None] * (n + 1), rows)


def _gathered(argument: Any, elements: Elements, members: IntArray, rows: Coefficients) -> None:
    """Apply an atom whose element ``k`` is the sum of the elements ``members[k]`` of its argument."""
    k = np.repeat(np.arange(len(elements.at)), members.shape[1])
    _read(argument, elements.taken(k, members[elements.at].ravel(), 1.0), rows)


def _multiplied(atom: Any, elements: Elements, rows: Coefficients) -> None:
    first, second = atom.args
    constant, argument = (first, second) if _is_factor(first, second) else (second, first)
    factor = rows.numbers(_affine_factor(atom, constant)).ravel(order="F")
    weighted = elements.times(factor[broadcast(constant, atom.shape, elements.at)])
    _read(argument, weighted.moved(broadcast(argument, atom.shape, elements.at)), rows)


def _divided(atom: Any, elements: Elements, rows: Coefficients) -> None:
    argument, divisor = atom.args
    by = rows.numbers(_affine_factor(atom, divisor)).ravel(order="F")
    by = by[broadcast(divisor, atom.shape, elements.at)]
    _read(argument, elements.times(1 / by).moved(broadcast(argument, atom.shape, elements.at)), rows)


def _product(atom: Any, elements: Elements, rows: Coefficients) -> None:
    """Apply ``left @ right``: the weights are rows of a constant `left` or columns of a constant `right`."""
    left, right = atom.args
    if left.ndim > 2 or right.ndim > 2:
        return _by_jacobian(atom, elements, rows)
    p = left.shape[0] if left.ndim == 2 else 1
    i, j = elements.at % p, elements.at // p
    if _sandwiched(atom, elements, rows, i, j):
        return None
    if _is_factor(left, right):
        matrix = rows.numbers(left, keep_sparse=True)
        k, at, weight = _nonzeros(matrix).of_rows(i)
        return _read(right, elements.taken(k, at + matrix.shape[-1] * j[k], weight), rows)
    matrix = rows.numbers(_affine_factor(atom, right), keep_sparse=True)
    k, at, weight = _nonzeros(matrix.T).of_rows(j)
    return _read(left, elements.taken(k, i[k] + p * at, weight), rows)


def _sandwiched(atom: Any, elements: Elements, rows: Coefficients, i: IntArray, j: IntArray) -> bool:
    """Store elements of ``A @ X @ B``, `X` a symmetric variable, as forms ``z'X z``; False unless all are."""
    left, right = atom.args
    if right.is_constant() and type(left).__name__ == "MulExpression":
        (first, X), last = left.args, right
    elif left.is_constant() and type(right).__name__ == "MulExpression":
        first, (X, last) = left, right.args
    else:
        return False
    if not (isinstance(X, cp.Variable) and X.is_symmetric() and first.is_constant() and last.is_constant()):
        return False
    Z, W = np.atleast_2d(rows.numbers(first))[i], np.atleast_2d(rows.numbers(last).T)[j]
    if not np.array_equal(Z, W):
        return False
    rows.quadratics.setdefault(X, []).append(Quadratics(elements.row, Z, elements.weight))
    return True


def _by_jacobian(atom: Any, elements: Elements, rows: Coefficients) -> None:
    """Apply the Jacobian of an atom, which CVXPY computes with variables of value zero as arguments."""
    if not (isinstance(atom, Atom) and atom.is_atom_affine()):  # `indicator` is no atom
        if rows.convex_terms is None:
            raise UnsupportedProblemError(f"{_name(atom)} is not affine")
        rows.convex_terms.append(ConvexTerm(type(atom).__name__, atom, elements))
        return
    inner = {
        number: cp.Variable(argument.shape)
        for number, argument in enumerate(atom.args)
        if not argument.is_constant()
    }
    for stand_in in inner.values():
        stand_in.value = np.zeros(stand_in.shape)
    alone = atom.copy([inner.get(number, argument) for number, argument in enumerate(atom.args)])
    if not alone.is_affine():
        raise UnsupportedProblemError(f"{_name(atom)} is not affine")
    slopes = _gradient(alone, atom)
    for number, stand_in in inner.items():
        slope = slopes[stand_in]
        slope = slope if sp.issparse(slope) else np.reshape(slope, (stand_in.size, atom.size))
        k, at, weight = _nonzeros(slope.T).of_rows(elements.at)
        _read(atom.args[number], elements.taken(k, at, weight), rows)
    rows.frozen.update(alone.parameters())
    rows.add_constant(elements, np.ravel(alone.value, order="F"))


def _gradient(alone: Any, atom: Any) -> Any:
    """Return CVXPY's gradient of the affine atom `alone`, whose arguments are variables."""
    try:
        return alone.grad
    except NotImplementedError:
        raise UnsupportedProblemError(f"CVXPY knows no derivative of {_name(atom)}") from None


def _name(atom: Any) -> str:
    return type(atom).__name__.removesuffix("Approx")


_Rule = Callable[[Any, Elements, Coefficients], None]
_RULES: dict[str, _Rule] = {
    "AddExpression": _added,
    "NegExpression": _negated,
    "index": _indexed,
    "Promote": _promoted,
    "Sum": _summed,
    "Trace": _traced,
    "multiply": _multiplied,
    "DivExpression": _divided,
    "MulExpression": _product,
    "reshape": _reshaped,
    "transpose": _transposed,
}
_PRODUCTS = {"multiply", "DivExpression", "MulExpression"}
_RULES |= dict.fromkeys(("special_index", "diag_mat", "diag_vec", "upper_tri"), _moved)
_RULES |= dict.fromkeys(("broadcast_to", "Hstack", "Vstack", "Concatenate"), _moved)
_RULES |= dict.fromkeys(("conj", "real", "Wrap", "symmetric_wrap", "skew_symmetric_wrap"), _unchanged)
_RULES |= dict.fromkeys(("psd_wrap", "nsd_wrap", "nonneg_wrap", "nonpos_wrap"), _unchanged)


def _rule(atom: Any) -> _Rule:
    return _RULES.get(type(atom).__name__, _by_jacobian)


def is_affine(expression: Any) -> bool:
    """Whether an expression is affine, as CVXPY says. It takes ten times as long to say it of a sum."""
    name = type(expression).__name__
    factors = expression.args[1:] if name == "DivExpression" else expression.args
    scaled = name in _PRODUCTS and any(isinstance(factor, cp.Constant) for factor in factors)
    if scaled or (name in _RULES and name not in _PRODUCTS):
        return all(map(is_affine, expression.args))
    return isinstance(expression, Leaf) or bool(expression.is_affine())


def _is_fixed(expression: Any) -> bool:
    """Whether an expression has neither variables nor parameters."""
    return bool(expression.is_constant()) and not expression.parameters()


def _is_factor(first: Any, second: Any) -> bool:
    """Whether the first factor is the constant one; of two constants, the one without parameters is."""
    return bool(first.is_constant()) and (not _is_fixed(second) or _is_fixed(first))


def _affine_factor(atom: Any, factor: Any) -> Any:
    if not factor.is_constant():
        raise UnsupportedProblemError(f"{type(atom).__name__} has no constant factor: it is not affine")
    return factor


class _Nonzeros(NamedTuple):
    """The nonzeros of a matrix, row by row, as CSR stores them."""

    indptr: IntArray
    indices: IntArray
    data: Array

    def of_rows(self, row: IntArray) -> tuple[IntArray, IntArray, Array]:
        """Return the nonzeros of some rows: the position of the row in `row`, column, value."""
        count = np.diff(self.indptr)[row]
        k = np.repeat(np.arange(len(row)), count)
        at = np.arange(len(k)) + np.repeat(self.indptr[row] - np.cumsum(count) + count, count)
        return k, self.indices[at].astype(np.intp), self.data[at]


def _nonzeros(matrix: Any) -> _Nonzeros:
    """Return the nonzeros of a dense or sparse matrix; a vector is one row."""
    if sp.issparse(matrix):
        rows = sp.csr_array(matrix)
        return _Nonzeros(rows.indptr, rows.indices, rows.data)
    matrix = np.atleast_2d(matrix)
    row, column = np.nonzero(matrix)
    return _Nonzeros(np.searchsorted(row, np.arange(len(matrix) + 1)), column, matrix[row, column])
