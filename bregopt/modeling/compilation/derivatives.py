"""How the data of a program depend on parameters: derivatives for answers, and intervals for proven bounds.

Bounds, coefficients, weights and penalties are affine in the parameters (disciplined parametrized
programming), so each part of the chain is a product with a stored sparse matrix or its transpose. ``X0`` and
the elementwise weights of a divergence may be a parameter themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, finite_array
from bregopt.modeling.affine import Affine
from bregopt.modeling.compilation.parametric_program import AffineNumbers, ParametricMatrix
from bregopt.modeling.variables import Parameter
from bregopt.program import Program
from bregopt.program.convex_terms import row_vectors
from bregopt.program.program import divergence_of
from bregopt.records import dataclass, replace
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data, MatrixData, Spread, data_of
from bregopt.routes.derivatives.system import Adjoint, Change


@dataclass(frozen=True, eq=False)
class _Part:
    """Numbers of the program that are affine in the parameters, and their effect on its conditions.

    The effect on the optimality conditions is a linear map; its transpose gives the gradient in the numbers.

    Parameters
    ----------
    slope : csr_array of shape (numbers, values)
    value : array of shape (numbers,), or None
        The gradient of the minimal value in the numbers; None where it is not known.
    rows, u, paid : sparse matrices with a column for each number, or None
        The effect on these parts of a :class:`Change`.
    X : tuple of (block, matrix of shape (n^2, numbers), anchor or None)
        The effect on the slope of a matrix, through an anchor in the coordinates of the user.
    """

    slope: Any
    value: Array | None
    rows: Any = None
    u: Any = None
    paid: Any = None
    X: tuple[tuple[int, Any, Any], ...] = ()

    def add(self, total: Change, change: Array) -> None:
        """Add a change of the numbers to that of the optimality conditions."""
        for name in ("rows", "u", "paid"):
            if getattr(self, name) is not None:
                getattr(total, name)[:] += getattr(self, name) @ change
        for b, matrix, anchor in self.X:
            moved = matrix @ change
            moved = moved.reshape(2 * (math.isqrt(len(moved)),))
            slope = total.X[b]
            assert slope is not None
            slope += moved if anchor is None else anchor.inside(moved)

    def gradient(self, found: Adjoint) -> Array:
        """Return the gradient in the numbers."""
        total = np.zeros(self.slope.shape[0])
        for name in ("rows", "u", "paid"):
            if getattr(self, name) is not None:
                total += getattr(self, name).T @ getattr(found, name)
        for b, matrix, anchor in self.X:
            total -= matrix.T @ np.ravel(found.X[b] if anchor is None else anchor.lifted(found.X[b]))
        return total


class ParameterChain:
    """How the data of a compiled problem depend on its parameters.

    Parameters
    ----------
    compiled : Compiled
    places : dict from Parameter to slice
        Of the values of all parameters.
    """

    def __init__(self, compiled: Any, places: dict[Any, slice]) -> None:
        self._compiled, self._places = compiled, places
        self._count = sum(p.size for p in places)

    def gradient(self, derivative: Any, found: Adjoint) -> dict[Any, Array]:
        """Return the gradients in all parameters."""
        if self._count == 0:
            return {}
        self._check(self._places)
        total = np.zeros(self._count)
        for part in self._parts(derivative):
            total += part.slope.T @ part.gradient(found)
        gradients = {p: total[place].reshape(p.shape) for p, place in self._places.items()}
        for b, name, p in self._data():
            gradients[p] = gradients[p] + _of_data(derivative, b, name, found.X[b])
        return gradients

    def of_value(self, derivative: Any) -> dict[Any, Array]:
        """Return the gradients of the minimal value in all parameters."""
        self._check(self._places)
        at, goal = derivative.optimum, self._compiled.goal
        total = (
            np.asarray(self._widened(goal).sum(axis=0)).ravel() if goal.parameters else np.zeros(self._count)
        )
        for part in self._parts(derivative):
            if part.value is None:
                raise ValueError("a parameter weighs soft rows; the gradient of the value in it is not known")
            total += part.slope.T @ part.value
        gradients = {p: total[place].reshape(p.shape) for p, place in self._places.items()}
        for b, name, p in self._data():
            nearness = at.program.blocks[b].nearness
            moved = at.X[b] - np.asarray(nearness.X0)
            if name == "X0":
                own = -divergence_of(nearness).anchor_derivative(moved)
            else:
                own = 2 * nearness.parameters["weights"] * moved**2
            gradients[p] = gradients[p] + nearness.mu * own
        return gradients

    def change(self, derivative: Any, changes: Mapping[Any, Any]) -> Change:
        """Return the effect of changes of parameters on the optimality conditions."""
        at, values = derivative.optimum, np.zeros(self._count)
        program = at.program
        for p, value in changes.items():
            if p not in self._places:
                raise ValueError(f"parameters has {p!r}, which does not occur in the problem")
            given = finite_array(value, f"the change of {p.name}")
            if given.shape != p.shape:
                raise ValueError(f"the change of {p.name} has shape {given.shape}; expected {p.shape}")
            values[self._places[p]] = given.ravel()
        self._check(changes)
        X = tuple(np.zeros((block.n, block.n)) for block in program.blocks)
        total = Change(X, np.zeros(program.m), np.zeros(program.k), np.zeros(program.m))
        for part in self._parts(derivative):
            part.add(total, part.slope @ values)
        for b, name, p in self._data():
            if p in changes:
                moved = values[self._places[p]].reshape(p.shape)
                slope = total.X[b]
                assert slope is not None
                slope -= _of_data(derivative, b, name, (moved + moved.T) / 2)
        return total

    def _check(self, parameters: Any) -> None:
        """Refuse parameters on which the answer depends in a way that has no derivative here."""
        for cap in self._compiled.caps:
            for p in cap.cap.operands("parameters"):
                if p in parameters:
                    raise ValueError(
                        f"{p.name} bounds the eigenvalues of {cap.X.name}; derivatives in such a bound are "
                        "not known. Write it as X << p I"
                    )
        for term in self._compiled.divergences:
            if term.complemented and term.X0 in parameters:
                raise ValueError(f"{term.X0.name} is an X0 with complement=; its derivative is not known")

    def _data(self) -> Iterator[tuple[int, str, Any]]:
        """Yield the parameters that are ``X0`` or elementwise weights, with their blocks."""
        for term in self._compiled.divergences:
            b = self._block_of(term)
            for name, value in (("X0", term.X0), *term.parameters.items()):
                if any(value is p for p in term.data):
                    yield b, name, value

    def _block_of(self, term: Any) -> int:
        names = [block.name for block in self._compiled.template.blocks]
        return names.index(term.X.name)

    def _parts(self, derivative: Any) -> Iterator[_Part]:
        """Yield the parts of the program that are affine in parameters."""
        compiled, at = self._compiled, derivative.optimum
        yield from self._bounds(at)
        yield from self._penalties(at)
        yield from self._weights(at)
        for b, matrix in compiled.parts.rows.items():
            yield _of_matrix(derivative, b, matrix, in_rows=True)
        for b, matrix in compiled.parts.costs.items():
            yield _of_matrix(derivative, b, matrix, in_rows=False)
        if compiled.parts.B is not None:
            yield _of_variables(at, compiled.parts.B, in_rows=True)
        if compiled.parts.c is not None:
            yield _of_variables(at, compiled.parts.c, in_rows=False)
        for template in compiled.terms:
            yield from self._of_term(at, template)

    def _bounds(self, at: Any) -> Iterator[_Part]:
        slope_of_bound = at.active.bound_slope(at.y)
        for numbers, sign in ((self._compiled.lower, 1), (self._compiled.upper, -1)):
            if numbers.slope is None:
                continue
            weight = np.where(at.active.side == sign, slope_of_bound, 0.0)
            weight[at.active.paid] = 0.0
            value = np.where(at.active.side == sign, at.y, 0.0)
            yield _Part(numbers.slope, value, rows=sp.diags_array(weight))

    def _penalties(self, at: Any) -> Iterator[_Part]:
        for c, place in self._compiled.constraint_slices:
            gamma = None if c.penalty is None else c.penalty.gamma
            if not isinstance(gamma, Affine):
                continue
            element = np.broadcast_to(np.arange(gamma.size).reshape(gamma.shape), c.shape).ravel()
            rows, m = np.arange(place.start, place.stop), len(at.y)
            curved, side = at.active.weight_slope(at.y)[rows], at.active.side[rows]
            paid = np.where(at.active.paid[rows], side, 0.0)
            yield _Part(
                self._widened(gamma)[element],
                None,
                rows=_placed(curved, rows, m),
                paid=_placed(paid, rows, m),
            )

    def _weights(self, at: Any) -> Iterator[_Part]:
        """Yield the weights of divergences."""
        for term in self._compiled.divergences:
            if term.parameter is None:
                continue
            b = self._block_of(term)
            share, divergence = term.weight / term.copies, divergence_of(at.program.blocks[b].nearness)
            steep = share * divergence.gradient(at.X[b])
            value = np.array([share * divergence.value(at.X[b])])
            yield _Part(self._widened(term.parameter), value, X=((b, steep.reshape(-1, 1), None),))

    def _of_term(self, at: Any, template: Any) -> Iterator[_Part]:
        """Yield the constants of a convex term's arguments, its weight, and the slopes that both change."""
        if not template.constant.parameters and template.parameter is None:
            return
        own = template.at_values()
        function, rows = own.function, own.rows
        local, owner = function.at(own.arguments(at.X, at.u)), function.owner
        if local is None:
            raise ValueError(
                f"an argument of {function.name} is on the boundary of its domain; expected one inside"
            )
        slopes = sp.csr_array((function.size, self._count))
        if template.constant.parameters:
            price = own.weight if rows is None else -own.weight * at.y[rows]
            H = local.curvature(price, sp.eye_array(function.size, format="csr"))
            constant = self._widened(template.constant)
            slopes = slopes + sp.csr_array(H @ constant)
            steep = own.weight[owner] * local.gradient
            effect = None if rows is None else _placed(-steep, rows[owner], len(at.y))
            yield _Part(constant, price[owner] * local.gradient, rows=effect)
        if template.parameter is not None:
            share, weight = template.term.weight, self._widened(template.parameter)
            slopes = slopes + sp.csr_array((share[owner] * local.gradient)[:, None]) @ weight
            yield _Part(weight, np.array([share @ local.value]))
        X = tuple((b, row_vectors(own.A, b).T, None) for b in range(len(at.X)))
        yield _Part(slopes, np.zeros(function.size), u=own.B.T, X=X)

    def _widened(self, e: Any) -> Any:
        """Return the slopes of an affine array of parameters in the values of all of them."""
        slope = sp.lil_array((e.size, self._count))
        for p, matrix in e.parameters.items():
            slope[:, self._places[p]] = matrix.toarray()
        return sp.csr_array(slope)


def _of_data(derivative: Any, b: int, name: str, S: Array) -> Array:
    """Return the derivative of minus the slope of a block in ``X0`` or in its weights, times a matrix."""
    at = derivative.optimum
    nearness = at.program.blocks[b].nearness
    if name == "X0":
        return nearness.mu * divergence_of(nearness).anchor_derivative(S)
    H, X0 = nearness.parameters["weights"], np.asarray(nearness.X0)
    return -4 * nearness.mu * H * (at.X[b] - X0) * S


def _of_matrix(derivative: Any, b: int, matrix: Any, in_rows: bool) -> _Part:
    """Return the coefficients of a matrix variable in the rows, or its costs."""
    at, anchor = derivative.optimum, derivative.anchors[b]
    k, entry = np.divmod(matrix.places, matrix.shape[1])
    of_X = np.ravel(anchor.lifted(at.X[b]))[entry]
    price = -at.y[k] if in_rows else np.ones(len(k))
    i, j = np.divmod(entry, math.isqrt(matrix.shape[1]))
    mirrored = _placed(price / 2, j * math.isqrt(matrix.shape[1]) + i, matrix.shape[1])
    effect = _placed(price / 2, entry, matrix.shape[1]) + mirrored
    rows = _placed(-of_X, k, len(at.y)) if in_rows else None
    return _Part(matrix.numbers.slope, price * of_X, rows=rows, X=((b, effect, anchor),))


def _of_variables(at: Any, matrix: Any, in_rows: bool) -> _Part:
    """Return the coefficients of the ordinary variables in the rows, or their costs."""
    k, j = np.divmod(matrix.places, matrix.shape[1])
    price = -at.y[k] if in_rows else np.ones(len(k))
    rows = _placed(-at.u[j], k, len(at.y)) if in_rows else None
    return _Part(matrix.numbers.slope, price * at.u[j], rows=rows, u=_placed(price, j, len(at.u)))


def _placed(weight: Array, row: IntArray, m: int) -> Any:
    """Return the sparse matrix of `m` rows whose column ``l`` has ``weight[l]`` in ``row[l]``."""
    return sp.csr_array((weight, (row, np.arange(len(row)))), (m, len(row)))


# --- Parameters with intervals ------------------------------------------------------------------------------


def uncertain(compiled: Any) -> tuple[str, ...]:
    """Return the names of the parameters with intervals."""
    return tuple(p.name for p in compiled.parameters if p.lo is not None)


def interval_data(compiled: Any, program: Program) -> Data:
    """Return the data of a program with the radii that follow from the intervals of its parameters.

    Parameters
    ----------
    compiled : Compiled
    program : Program
        At the current values of the parameters.

    Raises
    ------
    ValueError
        If a parameter with an interval is a weight, or a constant of the objective.
    """
    if not uncertain(compiled):
        return data_of(program)
    _check_places(compiled)
    values = _joined(p.elements for p in compiled.parameters)
    radii = _joined(p.radius for p in compiled.parameters)
    spreads = []
    for b, block in enumerate(program.blocks):
        parts = [(0, compiled.parts.rows.get(b)), (program.m, compiled.parts.costs.get(b))]
        found = [_spread(M, first, block.n, values, radii) for first, M in parts if M is not None]
        spreads.append(Spread(*map(np.concatenate, zip(*found, strict=True))) if found else None)
    data = data_of(program, spreads)
    anchors = {
        t.X.name: t.X0.radius for t in compiled.divergences if isinstance(t.X0, Parameter) and t.copies == 1
    }
    matrices = tuple(_with_radius(block, anchors.get(block.name)) for block in data.matrices)
    c = np.zeros(program.k)
    if compiled.parts.c is not None:
        c[compiled.parts.c.places] = _radius(compiled.parts.c.numbers, values, radii)
    return replace(
        data,
        matrices=matrices,
        lo_rad=_radius(compiled.lower, values, radii),
        hi_rad=_radius(compiled.upper, values, radii),
        B_rad=_sparse_radius(compiled.parts.B, values, radii),
        c=Ball(program.c, c),
    )


def _with_radius(block: MatrixData, rad: Array | None) -> MatrixData:
    """Return a block with the radii of its ``X0``; the average with the transpose is the matrix itself."""
    if rad is None or block.anchor is None:
        return block
    X0 = Ball(block.anchor.X0.mid, np.maximum(rad, rad.T))
    return replace(block, anchor=replace(block.anchor, X0=X0))


def _radius(numbers: AffineNumbers, values: Array, radii: Array) -> Array:
    """Return how far numbers may be from those at `values`, with the rounding of both."""
    if numbers.slope is None:
        return np.zeros(len(numbers.constant))
    slope = abs(numbers.slope)
    spread: Array = slope @ radii
    constant = np.where(np.isfinite(numbers.constant), np.abs(numbers.constant), 0.0)
    terms = int(np.diff(slope.indptr).max(initial=0)) + 4
    rounding = terms * EPS * (constant + slope @ np.abs(values) + spread)
    return np.where(spread > 0, spread + 2 * rounding, 0.0)


def _sparse_radius(matrix: ParametricMatrix | None, values: Array, radii: Array) -> Any:
    """Return the radii of a sparse matrix, None where all are zero."""
    if matrix is None:
        return None
    rad = _radius(matrix.numbers, values, radii)
    return replace(matrix, numbers=AffineNumbers(rad, None)).at(values) if rad.any() else None


def _spread(matrix: ParametricMatrix, first: int, n: int, values: Array, radii: Array) -> tuple[Any, ...]:
    """Return the rows, entries and radii of the coefficients of a matrix variable."""
    row, place = np.divmod(matrix.places, n * n)
    rad = _radius(matrix.numbers, values, radii)
    kept = rad > 0
    return row[kept] + first, place[kept], rad[kept]


def _check_places(compiled: Any) -> None:
    """Raise a ValueError if a parameter with an interval is where intervals are not supported."""
    weights: list[Any] = [
        *compiled.weights,
        *(t.parameter for t in compiled.divergences if t.parameter is not None),
    ]
    weights += [c.penalty.gamma for c, _ in compiled.constraint_slices if c.penalty is not None]
    places = [("a weight", w) for w in weights if isinstance(w, Affine)]
    places.append(("a constant of the objective", compiled.goal.constant_part()))
    for place, e in places:
        for p in e.parameters:
            if p.lo is not None:
                raise ValueError(
                    f"parameter {p.name} with an interval is {place}; expected bounds or coefficients"
                )
    for t in compiled.divergences:
        for p in t.data:
            plain = p is t.X0 and t.copies == 1 and not t.complemented
            if p.lo is not None and not plain:
                raise ValueError(
                    f"parameter {p.name} with an interval is in the {t.divergence} divergence of {t.X.name}; "
                    "expected the X0 of a real matrix"
                )


def _joined(parts: Iterator[Any]) -> Array:
    return np.concatenate([np.zeros(0), *(np.ravel(part) for part in parts)])
