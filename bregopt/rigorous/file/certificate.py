"""A certificate of bounds: the data of a problem and the points that prove them, in one file, and its check.

The check recomputes both bounds from the file, with the proofs of this package and with nothing of a solver.
It trusts no number of the file: :mod:`bregopt.rigorous.file.schema` has its fields. What it proves is true
of the problem in the file. That this is the reader's problem is certain only if its data come from the
reader's own statement, :meth:`BoundCertificate.of_problem`. A :class:`Verification` has the proven bounds, or
the reason why a side is not proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.display import Axes, html_table, plot_trace_profile, table_lines
from bregopt.files import path_of
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous.ball import down, up
from bregopt.rigorous.convex_terms import StatedTerm, in_epigraph
from bregopt.rigorous.data import Data
from bregopt.rigorous.faces import IntegerFace
from bregopt.rigorous.file import schema
from bregopt.rigorous.file.statement import Statement, integers_of, text
from bregopt.rigorous.fractions.high_precision import Digits, check_exact, proven_by_digits
from bregopt.rigorous.fractions.multipliers import exact_bound, exact_farkas
from bregopt.rigorous.linear_algebra import LARGEST_PARTS
from bregopt.rigorous.lower import clipped, exact_multipliers, lower_bound, psd_shifts
from bregopt.rigorous.proof import feasibility, homogeneous, refutes
from bregopt.rigorous.reduction import implied_bounds, reduced, reduced_in_steps
from bregopt.rigorous.upper import Point, factor_bound, fixes_diagonal, upper_bound

# What another processor's order of operations may change of a bound, relative to the bounds and to their
# distance.
_ROUNDING, _SHARE = 1e-9, 0.01
_SPARE = 64  # binary digits of multipliers beyond fractions, for those of bounds that are stated
_ZERO = 1e-20  # of the squares of X0, as distances may vanish
_LARGEST_CHECKED = 1_000  # order for which files save `bregopt-check` a search: it is for small problems
_NAMED = 4  # matrices of a problem that are listed by name
_STATED = "the caller states that the trace of {} is at most {:g}"
_NAMES = ("lower", "upper")


@dataclass(frozen=True, eq=False)
class BoundCertificate:
    """All that a third party needs to check proven bounds of a minimization.

    Parameters
    ----------
    data : Data
        The problem. Multipliers and points are those of the problem on faces and ranges
        (:func:`bregopt.rigorous.reduction.reduced`), beside a `factor` of the problem itself.
    traces : array of shape (blocks,)
        Bounds on traces that the caller stated; infinite where there are none.
    y : array of shape (m,) or None
        The multipliers that prove the lower bound.
    X : tuple of array or None
        Approximate matrices, from which terms of divergences take multipliers.
    point : Point or None
        The point that proves the upper bound.
    factor : array of shape (n, r) or None
        In place of `point`: a factor that proves the upper bound of a cut.
    farkas : array of shape (m,) or None
        Multipliers that prove the problem infeasible.
    ray : Point or None
        A direction that proves the problem unbounded, beside `point`.
    claims : (float, float)
        The bounds of the minimization, rounded outward once: other processors prove them, too.
    name : str
        What the problem is called.
    face : IntegerFace or None
        The face that rows imply together, on which multipliers and points are.
    digits : Digits or None
        Multipliers and a point in high precision, proven in fractions.
    terms : tuple of StatedTerm
        Convex terms in whose epigraph `point` is, after their sums; their arguments are the last rows.
    """

    data: Data
    traces: Array
    y: Array | None = None
    X: tuple[Array, ...] | None = None
    point: Point | None = None
    factor: Array | None = None
    farkas: Array | None = None
    ray: Point | None = None
    claims: tuple[float, float] = (-math.inf, math.inf)
    name: str = ""
    face: IntegerFace | None = None
    digits: Digits | None = None
    terms: tuple[StatedTerm, ...] = ()

    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the minimization that the points prove, computed from the data.

        Raises
        ------
        ValueError
            If multipliers or points are not those of a problem of this size.
        """
        data, lower, upper = self.data, -math.inf, math.inf
        if self.factor is None:
            data = reduced(data, self.face).data
        self._check_shapes(data)
        if self.farkas is not None and refutes(self.data, self.farkas):
            return math.inf, math.inf
        if self.y is not None:
            implied = implied_bounds(data).with_traces(self.traces)
            lower = lower_bound(data, self.y, implied, self.X).value
            lower = exact_bound(data, implied, self.y)[0] if lower == -math.inf else lower
        if self.point is not None:
            upper = upper_bound(data, self.point).value
            if self.terms and not (upper < math.inf and in_epigraph(data, self.terms, self.point)):
                upper = math.inf
        if self.digits is not None:
            check_exact(data)
            exact = proven_by_digits(data, self.digits, self.traces)
            lower, upper = max(lower, exact[0]), min(upper, exact[1])
        if self.factor is not None and fixes_diagonal(data):
            upper = factor_bound(data, self.factor).value
        if self.ray is not None and upper < math.inf:
            along = homogeneous(data)
            if along is not None and upper_bound(along, self.ray).value < 0:
                return -math.inf, -math.inf
        return lower, upper

    def _check_shapes(self, data: Data) -> None:
        """Refuse points of another problem; the data are those on faces and ranges."""
        square, rows = [(block.n, block.n) for block in data.matrices], (data.m,)
        wanted: list[tuple[str, Any, Any]] = [("traces", self.traces.shape, (len(square),))]
        wanted += [
            (name, y.shape, rows) for name, y in (("y", self.y), ("farkas", self.farkas)) if y is not None
        ]
        wanted.append(("has rows for its terms", data.m >= sum(term.size for term in self.terms), True))
        if self.X is not None:
            wanted.append(("X", [X.shape for X in self.X], square))
        if self.factor is not None:
            wanted.append(("the number of rows of factor", len(self.factor), sum(n for n, _ in square)))
        if self.digits is not None:
            y, X, u, equations, _ = self.digits
            wanted.append(("index of digits", int(equations.max(initial=-1)) < data.m, True))
            wanted.append(("digits of y", y.shape[1:], rows))
            wanted.append(("digits of X", [parts.shape[1:] for parts in X], square))
            wanted.append(("digits of u", u.shape[1:], (data.k,)))
        for name, point in (("point", self.point), ("ray", self.ray)):
            if point is not None:
                last = [int(part.max(initial=-1)) for part in (point.equations, point.movable)]
                wanted.append((f"X of {name}", [X.shape for X in point.X], square))
                wanted.append((f"u of {name}", point.u.shape, (data.k,)))
                wanted.append((f"index of {name}", last[0] < data.m and last[1] < data.k, True))
        for name, found, expected in wanted:
            if found != expected:
                raise ValueError(
                    f"the certificate is of another problem: {name} is {found}; expected {expected}"
                )

    def check(self) -> None:
        """Prove the bounds again.

        Raises
        ------
        ValueError
            If the data do not prove what is claimed.
        """
        try:
            with np.errstate(all="ignore"):
                found = self.bounds()
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            raise ValueError(f"the data prove nothing: their numbers are out of range ({error})") from error
        proven = found[0] >= self.claims[0], found[1] <= self.claims[1]
        for name, own, claim, holds in zip(("lower", "upper"), found, self.claims, proven, strict=True):
            if not holds:
                raise ValueError(f"the data prove the {name} bound {own!r}; the file claims {claim!r}")

    def of_problem(self, data: Data) -> BoundCertificate:
        """Return the certificate with the data of another statement: only points and multipliers stay."""
        return replace(self, data=data)

    @property
    def proven(self) -> str:
        """What is claimed, as one sentence, in the user's sign of the objective."""
        lower, upper = self.claims
        return stated(-upper, -lower, True) if self.data.maximize else stated(lower, upper, False)

    @property
    def given(self) -> tuple[str, ...]:
        """Bounds that the author stated and the proof uses: it holds if they do."""
        pairs = zip(self.data.matrices, self.traces.tolist(), strict=True)
        return tuple(_STATED.format(block.name, trace) for block, trace in pairs if trace < math.inf)

    @property
    def problem(self) -> str:
        """The name and the sizes of the problem, and the SHA-256 of its data."""
        data = self.data
        orders = ", ".join(f"{block.name} ({block.n})" for block in data.matrices[:_NAMED])
        if len(data.matrices) > _NAMED:
            orders = f"{len(data.matrices)} matrices, of order up to {max(b.n for b in data.matrices)}"
        sense = "maximization" if data.maximize else "minimization"
        sizes = f"{sense}, psd {orders or 'none'}, rows {data.m}, variables {data.k}"
        digest = schema.digest(*schema.packed_data(data))
        return f"{self.name + ': ' if self.name else ''}{sizes}, SHA-256 {digest}"

    def save(self, path: str | Path, name: str | None = None) -> None:
        """Write the certificate to a file ``.npz``.

        Parameters
        ----------
        path : str or Path
            A name that ends with ``.npz``; a file of this name is replaced in one step.
        name : str, optional
            What the problem is called, for those who check the file.

        Raises
        ------
        ValueError
            If the name has another ending.
        OSError
            If the file cannot be written; one of this name stays as it is.
        """
        arrays, facts = schema.packed_data(self.data)
        facts |= {
            "name": self.name if name is None else str(name),
            "lower": float(self.claims[0]).hex(),
            "upper": float(self.claims[1]).hex(),
        }
        arrays |= {"traces": self.traces}
        arrays |= {
            key: getattr(self, key) for key in ("y", "factor", "farkas") if getattr(self, key) is not None
        }
        arrays |= {f"X{b}": X for b, X in enumerate(self.X or ())}
        for key in ("point", "ray"):
            point: Point | None = getattr(self, key)
            arrays |= {} if point is None else schema.packed_point(key, point)
        if self.digits is not None:
            arrays |= {f"digits_{name}": getattr(self.digits, name) for name in ("y", "u", "equations")}
            arrays |= {f"digits_X{b}": parts for b, parts in enumerate(self.digits.X)}
        if self.face is not None:
            arrays |= {f"face{b}": T for b, T in enumerate(self.face.directions)}
            arrays |= {"exposing": self.face.weight}
        if self.terms:
            packed, facts["terms"] = schema.packed_terms(self.terms)
            arrays |= packed
        stated = self._statement()
        if stated:
            claims = {"claimed lower": facts["lower"], "claimed upper": facts["upper"]}
            arrays["statement"] = text({"format": schema.FORMAT, **claims, **stated})
        schema.write(path, arrays, facts, schema.FORMAT)

    def _statement(self) -> dict[str, Any]:
        """Return the problem and the points for `bregopt-check`; nothing for large matrices and factors."""
        low_rank = any(own.anchor is not None and own.anchor.factor is not None for own in self.data.matrices)
        if max((own.n for own in self.data.matrices), default=0) > _LARGEST_CHECKED or low_rank:
            return {}
        if self.factor is not None:
            return {}
        try:
            (data, _), steps = reduced_in_steps(self.data, self.face)
        except ValueError:  # a face that no rows imply: all checks refuse it
            return {}
        written = Statement(self.data, self.traces, self.terms, steps, self.face)
        faces, kept = written.faces(steps, self.face)
        found = written.problem(faces)
        multipliers = self._multipliers(data, written)
        if multipliers is not None:
            found["lower"] = written.multipliers(data, *multipliers)
        if self.point is not None:
            found["upper"] = _stated_point(written, data, kept, self.point, 1)
        elif self.digits is not None:
            own = self.digits
            found["upper"] = written.point(data, kept, own.X, own.u, own.equations.tolist(), range(data.k))
        if self.ray is not None:
            found["ray"] = _stated_point(written, data, kept, self.ray, 0)
        if multipliers is not None and self.X is not None:
            weighted = [own.anchor is not None and own.anchor.weights is not None for own in data.matrices]
            near = [X if own else np.zeros((0, 0)) for X, own in zip(self.X, weighted, strict=True)]
            found["lower"]["near"] = written.near(near, multipliers[1])
        return found

    def _multipliers(self, data: Data, written: Statement) -> tuple[list[int], int] | None:
        """Return multipliers in integers, with psd slacks where these prove the claim, and the price."""
        infeasible = self.farkas is not None
        y = self.farkas if infeasible else self.y
        digits = None if self.digits is None else integers_of([*self.digits.y.T.tolist(), [1.0]])
        if y is None:
            return digits
        own, price = (feasibility(data), 0.0) if infeasible else (data, 1.0)
        implied = implied_bounds(own).with_traces(self.traces)
        least = math.ulp(0.0) if infeasible else self.claims[0]
        found, _ = exact_multipliers(own, clipped(own, y))
        near = written.costless_near(clipped(own, y), price) if found is None else found
        y = near.mid
        shifts, cost = psd_shifts(own, near, implied, self.traces)
        proven = lower_bound(own, y, implied, self.X).value - cost >= least
        # Where the statement moves multipliers for free variables, its slacks need what makes up for that.
        moves = proven or bool(found is None and near.rad.any())
        sums = [*np.stack([y, shifts if moves else 0 * y], axis=1).tolist(), [price]]
        if proven and not own.free.any():
            return integers_of(sums)
        # Doubles leave free variables a cost, and with it singular slacks a negative eigenvalue. The slacks
        # are psd, as the checker counts no bounds on traces but those that are stated.
        implied = replace(implied, traces=self.traces)
        if infeasible:
            bound, exact = math.inf, exact_farkas(own, implied, y) or {}
        else:
            bound, exact = exact_bound(own, implied, y)
        if exact and bound >= least:
            shared = math.lcm(*(v.denominator for v in exact.values())) << _SPARE
            *whole, last = (int(exact.get(k, 0) * shared) for k in range(data.m + 1))
            return whole, -last
        if not proven and digits is not None:
            return digits
        return integers_of(sums)

    def _check_statement(self, fields: schema.Fields) -> None:
        """Refuse a file whose statement for `bregopt-check` is of another problem, or claims other bounds."""
        if "statement" not in fields:
            return
        found = fields.facts("statement")
        try:
            steps = reduced_in_steps(self.data, self.face)[1]
        except ValueError:
            steps = ()
        expected = Statement(self.data, self.traces, self.terms, steps, self.face).problem([])
        expected |= {f"claimed {side}": x.hex() for side, x in zip(_NAMES, self.claims, strict=True)}
        for name, value in expected.items():
            if name != "faces" and found.get(name) != value:
                raise ValueError(
                    f"{fields.path}: {name} of the statement is not that of the other arrays; expected a "
                    "file of certificate.save, as it was written"
                )

    @classmethod
    def load(cls, path: str | Path) -> BoundCertificate:
        """Return the certificate of a file.

        Parameters
        ----------
        path : str or Path
            Of a file that anybody may have written.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is not a certificate, was changed after it was written, or has a field of another type
            or shape, or outside its range; the message names the field.
        """
        return cls.of_fields(schema.Fields.of_file(path_of(path)))

    @classmethod
    def of_fields(cls, fields: schema.Fields) -> BoundCertificate:
        """Return the certificate in the fields of a file."""
        data = schema.read_data(fields)
        blocks = range(len(data.matrices))
        traces = fields.floats("traces", (len(blocks),), least=math.ulp(0.0), finite=False)
        lower, upper = fields.number("lower"), fields.number("upper")
        if not (lower < upper or (lower == upper and math.isinf(lower))):
            raise fields.error("lower", lower, f"a number below the upper bound {upper!r}")
        shapes = {"y": (data.m,), "farkas": (data.m,), "factor": (None, None)}
        points = {key: fields.floats(key, shape) for key, shape in shapes.items() if key in fields}
        X = tuple(fields.floats(f"X{b}", (None, None)) for b in blocks) if blocks and "X0" in fields else None
        found = cls(
            data,
            traces,
            **points,
            X=X,
            point=schema.read_point(fields, "point", data),
            ray=schema.read_point(fields, "ray", data),
            claims=(lower, upper),
            name=fields.text("name"),
            face=schema.read_face(fields, data),
            digits=_read_digits(fields, data),
            terms=schema.read_terms(fields, data),
        )
        if found.terms and (found.ray, found.factor, found.digits) != (None, None, None):
            raise fields.error("terms", len(found.terms), "none beside a ray, a factor or digits")
        found._check_statement(fields)
        fields.finish()
        return found


def _stated_point(
    written: Statement, data: Data, kept: list[list[int]], point: Point, t: int
) -> dict[str, Any]:
    X = [M[None] for M in point.X]
    return written.point(data, kept, X, point.u[None], point.equations.tolist(), point.movable.tolist(), t)


def _read_digits(fields: schema.Fields, data: Data) -> Digits | None:
    if "digits_y" not in fields:
        return None
    X = tuple(fields.floats(f"digits_X{b}", (None, None, None)) for b in range(len(data.matrices)))
    y, u = (fields.floats(name, (None, None)) for name in ("digits_y", "digits_u"))
    for name, parts in {
        "digits_y": y,
        "digits_u": u,
        **{f"digits_X{b}": own for b, own in enumerate(X)},
    }.items():
        if not 0 < len(parts) <= LARGEST_PARTS:
            raise fields.error(name, len(parts), f"1 to {LARGEST_PARTS} parts of each number")
    return Digits(y, X, u, fields.subset("digits_equations", data.m), np.zeros((1, 1)))


def rounded(claims: tuple[float, float], data: Data) -> tuple[float, float]:
    """Return bounds rounded outward by what other processors, or the numbers of a file, may lose."""
    lower, upper = claims
    finite = [claim for claim in claims if math.isfinite(claim)]
    squares = (
        own.anchor.mu * np.sum(own.anchor.X0.mid**2) for own in data.matrices if own.anchor is not None
    )
    room = max(_ROUNDING * max(map(abs, finite), default=0.0), _ZERO * float(sum(squares)))
    room += _SHARE * (upper - lower) if len(finite) == len(claims) else 0.0
    return (
        down(lower - room) if math.isfinite(lower) else lower,
        up(upper + room) if math.isfinite(upper) else upper,
    )


def stated(lower: float, upper: float, maximize: bool) -> str:
    """Return what bounds say of the optimum, as one sentence."""
    if math.isinf(lower) and lower == upper:
        return f"the problem is {'infeasible' if (lower > 0) != maximize else 'unbounded'}"
    if math.isfinite(lower) and math.isfinite(upper):
        return f"the optimum is between {lower:.17g} and {upper:.17g}"
    if math.isfinite(lower):
        return f"the optimum is at least {lower:.17g}"
    return f"the optimum is at most {upper:.17g}" if math.isfinite(upper) else "nothing"


class ProvenBound(NamedTuple):
    """A bound of a problem that counts all rounding.

    Parameters
    ----------
    value : float
        A lower bound of a minimization, an upper bound of a maximization.
    reason : str
        Why nothing is proven; empty where something is.
    X : array, or a tuple of those, or None
        The matrices of the answer that led to it, for heuristics and the choice of branches.
    u : dict from str to float or array
        Its ordinary variables by name.
    """

    value: float
    reason: str
    X: Any
    u: dict[str, Any]


@dataclass(frozen=True)
class Verification:
    """Bounds on the optimal value that hold in spite of all rounding, in the user's sign of the objective.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them; ``-inf`` and ``inf`` where a side is not proven. Both are ``inf``
        (``-inf`` for a maximization) if the problem is proven infeasible, and the other infinity if it is
        proven unbounded.
    reasons : dict from str to str
        For each side that is not proven, "lower" or "upper", the reason and the next step.
    given : tuple of str
        What the proof uses besides the data, such as bounds that the caller stated: it holds if that does.
    intervals : tuple of str
        The parameters for every value of which, in their intervals, the bounds hold.
    seconds : float
        The time of the proof, with that of further solves.
    solves : int
        The further solves that looked for more interior points.
    source : BoundCertificate or callable, optional
        The certificate, or what returns it when it is first asked for.
    """

    lower: float
    upper: float
    reasons: dict[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    intervals: tuple[str, ...] = ()
    seconds: float = 0.0
    solves: int = 0
    source: BoundCertificate | Callable[[], BoundCertificate | None] | None = field(default=None, repr=False)

    @cached_property
    def certificate(self) -> BoundCertificate | None:
        """The data and the points of the proof.

        ``certificate.save(file)`` writes them, and ``bregopt verify FILE`` checks them again.
        """
        return self.source() if callable(self.source) else self.source

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"source": self.certificate}

    @property
    def width(self) -> float:
        """``upper - lower``; zero if the problem is proven infeasible or unbounded."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    @property
    def relative_width(self) -> float:
        """The width divided by the larger magnitude of the bounds, but by no less than one."""
        if self.width == 0 or math.isinf(self.width):
            return self.width
        return self.width / max(1.0, abs(self.lower), abs(self.upper))

    @property
    def infeasible(self) -> bool:
        """Whether the problem is proven infeasible."""
        return self.lower == self.upper == (-math.inf if self._maximize else math.inf)

    @property
    def unbounded(self) -> bool:
        """Whether the problem is proven unbounded."""
        return self.lower == self.upper == (math.inf if self._maximize else -math.inf)

    @property
    def proven(self) -> str:
        """What is proven, as one sentence."""
        return stated(self.lower, self.upper, self._maximize)

    @property
    def _maximize(self) -> bool:
        return self.certificate is not None and self.certificate.data.maximize

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("lower", f"{self.lower:.16g}"), ("upper", f"{self.upper:.16g}")]
        if math.isfinite(self.lower) and math.isfinite(self.upper):
            facts.append(("width", f"{self.width:.1e}, relative {self.relative_width:.1e}"))
        facts += [(f"no {name}", self.reasons[name]) for name in _NAMES if name in self.reasons]
        facts += [("given", text) for text in self.given]
        if self.intervals:
            facts.append(("for all", f"values of {', '.join(self.intervals)} in their intervals"))
        return [*facts, ("effort", f"{self.seconds:.3g} s, {self.solves} further solves")]

    def __repr__(self) -> str:
        finite = math.isfinite(self.lower) and math.isfinite(self.upper)
        lines = [f"bregopt verification: {'both bounds are proven' if finite else self.proven}"]
        return "\n".join([*lines, *(f"  {name:<10} {fact}" for name, fact in self._facts())])

    def _repr_html_(self) -> str:
        return html_table((), [("proven", self.proven), *self._facts()], left=2)


@dataclass(frozen=True)
class TraceProfile:
    """The optimum given that the traces of the slacks ``C - A*(y)`` sum to at most ``R``, for several ``R``.

    Where it drifts with ``R``, no finite multipliers prove the optimum of the problem itself.

    Attributes
    ----------
    traces : array of shape (k,)
        The bounds ``R``, ascending.
    lower, upper : array of shape (k,)
        Proven bounds of the optimum for each of them.
    """

    traces: Array
    lower: Array
    upper: Array

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the proven intervals by ``R``; returns the matplotlib axes."""
        return plot_trace_profile(self.traces, self.lower, self.upper, ax)

    def __repr__(self) -> str:
        rows = zip(self.traces.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        cells = [[f"{R:g}", f"{low:.10g}", f"{high:.10g}"] for R, low, high in rows]
        return "\n".join(table_lines(("trace of slacks", "lower", "upper"), cells, left=0))
