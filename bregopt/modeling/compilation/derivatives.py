"""How the data of a program depend on parameters: derivatives for answers, and intervals for proven bounds.

Bounds, coefficients, weights and penalties are affine in the parameters (disciplined parametrized
programming), so each part of the chain is a product with a stored sparse matrix or its transpose. ``X0`` and
the elementwise weights of a divergence may be a parameter themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, Array, IntArray, finite_array
from bregopt.modeling.affine import Affine
from bregopt.modeling.compilation.parametric_program import AffineNumbers, ParametricMatrix
from bregopt.modeling.variables import Parameter
from bregopt.program import Program
from bregopt.program.program import divergence_of
from bregopt.records import dataclass, replace
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data, MatrixData, Spread, data_of
from bregopt.routes.derivatives.system import Adjoint, Change


@dataclass(frozen=True, eq=False)
class _Part:
    """Numbers of the program that are affine in the parameters, and their effect on the answer.

    Parameters
    ----------
    slope : csr_array of shape (numbers, values)
    gradient : callable
        Returns the gradient in the numbers.
    add : callable
        Adds a change of the numbers to that of the optimality conditions.
    value : array of shape (numbers,), or None
        The gradient of the minimal value in the numbers; None where it is not known.
    """

    slope: Any
    gradient: Any
    add: Any
    value: Array | None


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
            gradients[p] = gradients[p] + self._of_data(derivative, b, name, found)
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
                self._add_data(derivative, b, name, values[self._places[p]].reshape(p.shape), total)
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

    def _of_data(self, derivative: Any, b: int, name: str, found: Adjoint) -> Array:
        """Return the gradient in ``X0`` or in the weights of a block."""
        at, slope = derivative.optimum, found.X[b]
        nearness = at.program.blocks[b].nearness
        if name == "X0":
            return nearness.mu * divergence_of(nearness).anchor_derivative(slope)
        H, X0 = nearness.parameters["weights"], np.asarray(nearness.X0)
        return -4 * nearness.mu * H * (at.X[b] - X0) * slope

    def _add_data(self, derivative: Any, b: int, name: str, change: Array, total: Change) -> None:
        at = derivative.optimum
        nearness = at.program.blocks[b].nearness
        change = (change + change.T) / 2
        slope = total.X[b]
        assert slope is not None
        if name == "X0":
            slope -= nearness.mu * divergence_of(nearness).anchor_derivative(change)
        else:
            H, X0 = nearness.parameters["weights"], np.asarray(nearness.X0)
            slope += 4 * nearness.mu * H * (at.X[b] - X0) * change

    def _parts(self, derivative: Any) -> Iterator[_Part]:
        """Yield the parts of the program that are affine in parameters."""
        compiled, at = self._compiled, derivative.optimum
        yield from self._bounds(at)
        yield from self._penalties(at)
        yield from self._weights(at)
        for b, matrix in compiled.parts.rows.items():
            yield _of_rows(derivative, b, matrix)
        for b, matrix in compiled.parts.costs.items():
            yield _of_costs(derivative, b, matrix)
        if compiled.parts.B is not None:
            yield _of_variables(at, compiled.parts.B)
        if compiled.parts.c is not None:
            yield _of_variable_costs(at, compiled.parts.c)
        for template in compiled.terms:
            yield from self._of_term(at, template)

    def _bounds(self, at: Any) -> Iterator[_Part]:
        slope_of_bound = at.active.bound_slope(at.y)
        for numbers, sign in ((self._compiled.lower, 1), (self._compiled.upper, -1)):
            if numbers.slope is None:
                continue
            weight = np.where(at.active.side == sign, slope_of_bound, 0.0)
            weight[at.active.paid] = 0.0

            def add(total: Change, change: Array, weight: Array = weight) -> None:
                total.rows[:] += weight * change

            value = np.where(at.active.side == sign, at.y, 0.0)
            yield _Part(numbers.slope, lambda found, weight=weight: weight * found.rows, add, value)

    def _penalties(self, at: Any) -> Iterator[_Part]:
        for c, place in self._compiled.constraint_slices:
            gamma = None if c.penalty is None else c.penalty.gamma
            if not isinstance(gamma, Affine):
                continue
            element = np.broadcast_to(np.arange(gamma.size).reshape(gamma.shape), c.shape).ravel()
            slope = self._widened(gamma)[element]
            rows = np.arange(place.start, place.stop)
            curved, side = at.active.weight_slope(at.y)[rows], at.active.side[rows]
            paid = np.where(at.active.paid[rows], side, 0.0)

            def gradient(found: Adjoint, rows=rows, curved=curved, paid=paid) -> Array:  # type: ignore[no-untyped-def]
                return curved * found.rows[rows] + paid * found.paid[rows]

            def add(total: Change, change: Array, rows=rows, curved=curved, paid=paid) -> None:  # type: ignore[no-untyped-def]
                total.rows[rows] += curved * change
                total.paid[rows] += paid * change

            yield _Part(slope, gradient, add, None)

    def _weights(self, at: Any) -> Iterator[_Part]:
        """Yield the weights of divergences."""
        for term in self._compiled.divergences:
            if term.parameter is None:
                continue
            b = self._block_of(term)
            nearness = at.program.blocks[b].nearness
            share, divergence = term.weight / term.copies, divergence_of(nearness)
            steep = share * divergence.gradient(at.X[b])

            def gradient(found: Adjoint, b: int = b, steep: Array = steep) -> Array:
                return np.array([-float(np.vdot(steep, found.X[b]))])

            def add(total: Change, change: Array, b: int = b, steep: Array = steep) -> None:
                slope = total.X[b]
                assert slope is not None
                slope += change[0] * steep

            value = np.array([share * divergence.value(at.X[b])])
            yield _Part(self._widened(term.parameter), gradient, add, value)

    def _of_term(self, at: Any, template: Any) -> Iterator[_Part]:
        """Yield the constants of a convex term's arguments, and its weight."""
        if not template.constant.parameters and template.parameter is None:
            return
        own = template.at_values()
        local, owner = own.function.at(own.arguments(at.X, at.u)), own.function.owner
        if local is None:
            raise ValueError(
                f"an argument of {own.function.name} is on the boundary of its domain; expected one inside"
            )
        price = own.weight if own.rows is None else -own.weight * at.y[own.rows]

        def along(found: Adjoint) -> Array:
            return own.B @ found.u - own.A.apply(found.X)

        def add_slope(total: Change, slope: Array) -> None:
            for b, S in enumerate(total.X):
                assert S is not None
                S += own.A.adjoint(slope, b)
            total.u[:] += own.B.T @ slope

        if template.constant.parameters:
            H = local.curvature(price, sp.eye_array(own.function.size, format="csr"))
            steep = own.weight[owner] * local.gradient

            def gradient(found: Adjoint) -> Array:
                rows = 0.0 if own.rows is None else steep * found.rows[own.rows][owner]
                return H @ along(found) - rows

            def add(total: Change, change: Array) -> None:
                add_slope(total, H @ change)
                if own.rows is not None:
                    np.subtract.at(total.rows, own.rows[owner], steep * change)

            yield _Part(self._widened(template.constant), gradient, add, price[owner] * local.gradient)
        if template.parameter is not None:
            share = template.term.weight
            cost = share[owner] * local.gradient

            def add_weight(total: Change, change: Array) -> None:
                add_slope(total, change[0] * cost)

            weight = _Part(
                self._widened(template.parameter),
                lambda found: np.array([cost @ along(found)]),
                add_weight,
                np.array([share @ local.value]),
            )
            yield weight

    def _widened(self, e: Any) -> Any:
        """Return the slopes of an affine array of parameters in the values of all of them."""
        slope = sp.lil_array((e.size, self._count))
        for p, matrix in e.parameters.items():
            slope[:, self._places[p]] = matrix.toarray()
        return sp.csr_array(slope)


def _of_rows(derivative: Any, b: int, matrix: Any) -> _Part:
    """Return the coefficients of a matrix variable in the rows."""
    at = derivative.optimum
    k, i, j = _row_and_entry(matrix)
    X, lift = derivative.anchors[b].lifted(at.X[b]), derivative.anchors[b].lifted
    of_X, y = X[i, j], at.y[k]

    def gradient(found: Adjoint) -> Array:
        return y * lift(found.X[b])[i, j] - found.rows[k] * of_X

    def add(total: Change, change: Array) -> None:
        np.add.at(total.rows, k, -change * of_X)
        slope = total.X[b]
        assert slope is not None
        slope += derivative.anchors[b].inside(_scattered(i, j, -y * change, len(X)))

    return _Part(matrix.numbers.slope, gradient, add, -y * of_X)


def _of_costs(derivative: Any, b: int, matrix: Any) -> _Part:
    """Return the linear costs of a matrix variable."""
    _, i, j = _row_and_entry(matrix)
    anchor, n = derivative.anchors[b], round(np.sqrt(matrix.shape[1]))

    def add(total: Change, change: Array) -> None:
        slope = total.X[b]
        assert slope is not None
        slope += anchor.inside(_scattered(i, j, change, n))

    of_X = anchor.lifted(derivative.optimum.X[b])[i, j]
    return _Part(matrix.numbers.slope, lambda found: -anchor.lifted(found.X[b])[i, j], add, of_X)


def _of_variables(at: Any, matrix: Any) -> _Part:
    """Return the coefficients of the ordinary variables in the rows."""
    k, j = np.divmod(matrix.places, matrix.shape[1])
    u, y = at.u[j], at.y[k]

    def add(total: Change, change: Array) -> None:
        np.add.at(total.rows, k, -change * u)
        np.add.at(total.u, j, -change * y)

    return _Part(matrix.numbers.slope, lambda found: -found.rows[k] * u - found.u[j] * y, add, -y * u)


def _of_variable_costs(at: Any, matrix: Any) -> _Part:
    """Return the costs of the ordinary variables."""
    j = matrix.places

    def add(total: Change, change: Array) -> None:
        np.add.at(total.u, j, change)

    return _Part(matrix.numbers.slope, lambda found: found.u[j], add, at.u[j])


def _row_and_entry(matrix: Any) -> tuple[IntArray, IntArray, IntArray]:
    """Return the row and the entry of each coefficient."""
    k, entry = np.divmod(matrix.places, matrix.shape[1])
    i, j = np.divmod(entry, round(np.sqrt(matrix.shape[1])))
    return k, i, j


def _scattered(i: IntArray, j: IntArray, value: Array, n: int) -> Array:
    """Return the symmetric matrix of terms ``value X[i, j]``."""
    S = np.zeros((n, n))
    np.add.at(S, (i, j), value / 2)
    np.add.at(S, (j, i), value / 2)
    return S


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
