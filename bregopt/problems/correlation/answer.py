"""The answer to a nearest correlation or covariance problem, which knows what was asked, and its report."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bregopt.arrays import Array, ArrayOrFrame, IntArray, Mask, rectangular, unlike_sizes
from bregopt.certify import bracket, proven_bound
from bregopt.certify.accuracy import Accuracy
from bregopt.display import Axes, plot_correlation
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.matrices import Labels, is_pandas, labeled
from bregopt.problems.correlation.request import Request, left_out_message
from bregopt.problems.reports import Report, Table, caption
from bregopt.program import StopReason
from bregopt.records import cached_property, dataclass, field_names, replace
from bregopt.routes.accuracy import Units, summary
from bregopt.routes.solution import MatricesLike, Solution

if TYPE_CHECKING:
    from bregopt.problems.correlation.infeasibility import Suggestion
    from bregopt.routes.derivatives.derivative import Derivative, Products

_RESOLUTION = 1e-6  # fraction of the scale: the round-off of the bounds of `bracketed`
_LARGEST_PRODUCTS = 45  # order up to which products with the derivative take less time than its general form

_NEAR = 1e-6  # distance, relative to the largest entry, within which an entry is at its bound
_PAIRS = ("row", "column", "before", "after", "change", "note")
_ROWS = ("row", "sum before", "sum after", "change", "sum of |changes|")


@dataclass(frozen=True, eq=False, repr=False)
class CorrelationSolution(Solution):
    """A :class:`Solution` that knows the matrix from which it started, and says what changed.

    Attributes
    ----------
    suggestion : Suggestion or None
        The nearest request that works, if the request is infeasible and ``suggest=True``.
    left_out : tuple
        The labels, or numbers, of the rows without data. These rows of ``X`` are NaN.
    """

    suggestion: Suggestion | None = None
    left_out: tuple[Hashable, ...] = ()
    _request: Request | None = field(default=None, repr=False)
    _rows: Mask | None = field(default=None, repr=False)  # with data; None if all have some

    @cached_property
    def _known(self) -> CorrelationSolution:
        """The answer for the rows with data."""
        if self._rows is None or self.X is None:
            return self
        X = np.asarray(self.X)[np.ix_(self._rows, self._rows)]
        return replace(self, X=X, _rows=None)

    @property
    def rank(self) -> int | Any:
        """The rank of the rows with data; None if there is no answer."""
        return super().rank if self._rows is None else self._known.rank

    @property
    def accuracy(self) -> Accuracy | tuple[Accuracy, ...] | None:
        """As :attr:`Solution.accuracy`, of the rows with data."""
        return super().accuracy if self._rows is None else self._known.accuracy

    @property
    def _derivative(self) -> Derivative:
        return super()._derivative if self._rows is None else self._known._derivative

    @cached_property
    def _in_program(self) -> Solution | None:
        """The answer in the terms of its problem, which is declared when it is asked for."""
        request = self._request
        if self._rows is not None and self.X is not None:
            return self._known._in_program
        if self._raw is not None or request is None or self.X is None or self.duals is None:
            return self._raw
        if request.kind is None or request.groups is not None or request.rank is not None:
            return None  # its problem is another one
        from bregopt.problems.correlation.solve import declared  # only those who ask for it wait

        problem, units = declared(replace(request, labels=None)), request.units
        if request.scale is not None:
            units = (units or Units(np.ones(request.n), np.zeros(request.n))).scaled(request.scale)
        Y = np.asarray(self.X) if units is None else units.of_program(np.asarray(self.X))
        known = {name: getattr(self, name) for name in field_names(Solution)}
        known |= {"X": (Y,), "u": np.zeros(0), "duals": -np.concatenate([np.ravel(v) for v in self.duals])}
        return Solution(**known | {"_program": problem.program(), "_compiled": problem._compiled})

    # Pays on: the gradient of a nearest correlation matrix, n = 12.
    @cached_property
    def _products(self) -> Products | None:
        """Products with the derivative of an answer with a diagonal alone, where Newton's method left it."""
        request = self._request
        if self._raw is not None or request is None or not request.is_plain or request.n > _LARGEST_PRODUCTS:
            return None
        from bregopt.routes.derivatives.derivative import Products  # only those who differentiate wait

        return Products.of(request.divergence, np.asarray(request.A), -np.asarray(self.duals[0]))

    def vjp(self, G: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        """Return the gradient of ``<G, X>`` in `A`, as :meth:`Solution.vjp`."""
        if self._rows is not None and self.X is not None:
            return self._whole(self._known.vjp(self._part(G, "G")))
        products = self._products
        return super().vjp(G) if products is None else products.vjp(G, self.X)

    def jvp(self, dA: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        """Return the change of ``X`` as `A` changes, as :meth:`Solution.jvp`.

        Unknown entries do not count: `dA` may have NaN there, as the difference of two matrices has.
        """
        request = self._request
        if request is not None and request.unknown is not None and self._rows is None:
            frame: Any = dA if is_pandas(dA, "DataFrame") else None
            given = rectangular(dA, "dA") if frame is None else frame
            if given.shape == request.unknown.shape:
                zeros = np.where(request.unknown, 0.0, given)
                dA = zeros if frame is None else type(frame)(zeros, frame.index, frame.columns)
        if self._rows is not None and self.X is not None:
            return self._whole(self._known.jvp(self._part(dA, "dA")))
        products = self._products
        return super().jvp(dA) if products is None else products.jvp(dA, self.X)

    def _part(self, value: Any, name: str) -> Any:
        """Return the rows with data of a matrix of the whole order."""
        assert self._rows is not None
        matrix = rectangular(value, name)
        if matrix.shape != (len(self._rows),) * 2:
            raise ValueError(f"{name} has shape {matrix.shape}; expected {(len(self._rows),) * 2}")
        if is_pandas(value, "DataFrame"):
            return value.iloc[self._rows, self._rows]
        return matrix[np.ix_(self._rows, self._rows)]

    def _whole(self, value: Any) -> Any:
        """Return a matrix of the whole order, zero in the rows without data."""
        assert self._rows is not None
        whole = np.zeros((len(self._rows),) * 2)
        whole[np.ix_(self._rows, self._rows)] = value
        X: Any = self.X
        return type(X)(whole, X.index, X.columns) if is_pandas(X, "DataFrame") else whole

    def report(self) -> CorrelationReport:
        """Return what changed, by label, with the spectra before and after and the proof of the answer.

        Returns
        -------
        CorrelationReport
            It prints, and goes to pandas, Excel and HTML.

        Raises
        ------
        ValueError
            If there is no answer.
        """
        return CorrelationReport.of(self, self._asked)

    def plot(self, ax: Sequence[Axes] | None = None) -> NDArray[np.object_]:  # type: ignore[override]
        """Draw the matrix before, after, and the change, and both spectra.

        Covariances of unlike units are drawn as correlations, as all small ones would look like zeros.

        Parameters
        ----------
        ax : sequence of four matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        array of four matplotlib axes

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message names the extra.
        ValueError
            If there is no answer.
        """
        request = self._asked
        unlike = unlike_sizes(np.sqrt(request.diagonal)) is not None
        unit, what = (request.unit, ", as correlations") if unlike else (1.0, "")
        before, after = request.given / unit, np.asarray(self._known.X) / unit
        return plot_correlation(before, after, request.labels, ax, what)

    @property
    def _asked(self) -> Request:
        if self.X is None:
            raise ValueError(f"there is no answer to report: the status is {self.status}. {self.stop_reason}")
        assert self._request is not None
        return self._request


def with_rows_left_out(
    solution: CorrelationSolution, rows: Mask, names: Sequence[Hashable], labels: Labels, name: str
) -> CorrelationSolution:
    """Return the answer of the whole order from that for the `rows` with data; warn of the others by `names`.

    The `labels` are those of all rows, and `name` is that of the matrix.
    """
    warn_caller(left_out_message(names, name), DataWarning)
    if solution.X is None:
        return replace(solution, left_out=tuple(names))
    X = np.full((len(rows),) * 2, np.nan)
    X[np.ix_(rows, rows)] = np.asarray(solution.X)
    return labeled(replace(solution, X=X, left_out=tuple(names), _rows=rows), labels)


def reportable(
    solution: Solution, request: Request | None = None, suggested: Suggestion | None = None
) -> CorrelationSolution:
    """Return a solution that knows what was asked."""
    known = {name: getattr(solution, name) for name in field_names(Solution)}
    return CorrelationSolution(**known, suggestion=suggested, _request=request)


@dataclass(frozen=True, eq=False, repr=False)
class CorrelationReport(Report):
    """What changed, by label, and what is proven.

    Its tables (`to_frame`, `to_excel`, `to_csv`) are "summary"; "pairs", those that changed most first;
    "rows", in the same order; "spectrum"; and the repaired matrix with its labels, "correlation", also
    "covariance" if it is one.

    Attributes
    ----------
    before, after : array of shape (n, n)
        NaN where an entry of the given matrix is unknown.
    labels : sequence
        The labels of the rows, or their numbers.
    distance, relative, largest : float
        The Frobenius norm of the change, the same relative to that of the given matrix, and the largest
        change of an entry. Unknown entries do not count, in the sums of the rows neither.
    spectrum_before, spectrum_after : array of shape (n,)
        Eigenvalues, ascending; those before are NaN if entries are unknown.
    proven_eigenvalue : float
        A proven lower bound on the eigenvalues of the answer, by a Cholesky factorization with a bound on its
        round-off (Rump 2006, Verification of positive definiteness).
    diagonal_error : float
        Largest distance of the diagonal from the required one.
    """

    _tables = ("summary", "pairs", "rows", "spectrum", "correlation", "covariance")
    _matrices = ("covariance", "correlation")

    before: Array
    after: Array
    labels: Sequence[Hashable]
    spectrum_before: Array
    spectrum_after: Array
    proven_eigenvalue: float
    diagonal_error: float
    _solution: CorrelationSolution
    _asked: Request

    @classmethod
    def of(cls, solution: CorrelationSolution, asked: Request) -> CorrelationReport:
        """Return the report of an answer."""
        before, after = asked.given, np.asarray(solution._known.X)
        given: Any = np.linalg.eigvalsh(before) if np.isfinite(before).all() else np.full(len(after), np.nan)
        own = np.linalg.eigvalsh(after)
        n = len(after)
        return cls(
            before=before,
            after=after,
            labels=range(n) if asked.labels is None else asked.labels,
            spectrum_before=given,
            spectrum_after=own,
            proven_eigenvalue=-proven_bound(-after, -float(own[0]), 0.0),
            diagonal_error=float(np.abs(after.diagonal() - asked.diagonal).max()),
            _solution=solution,
            _asked=asked,
        )

    @cached_property
    def change(self) -> Array:
        """The change of each entry, zero where the given one is unknown."""
        return np.nan_to_num(self.after - self.before)

    @property
    def distance(self) -> float:
        """The Frobenius norm of the change."""
        return float(np.linalg.norm(self.change))

    @property
    def relative(self) -> float:
        """The norm of the change, relative to that of the given matrix."""
        size = float(np.linalg.norm(np.nan_to_num(self.before)))
        return self.distance / size if size > 0 else float("nan")

    @property
    def largest(self) -> float:
        """The largest change of an entry, in magnitude."""
        return float(np.abs(self.change).max())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables: "covariance" is there if the answer is one."""
        return tuple(name for name in self._tables if name != "covariance" or self._is_covariance)

    @property
    def _is_covariance(self) -> bool:
        return bool((self._asked.diagonal != 1).any())

    @property
    def title(self) -> str:
        """What the report is of."""
        return f"{len(self.after)} x {len(self.after)} matrix, repaired: {self._solution.status}"

    @cached_property
    def facts(self) -> dict[str, str]:
        """The numbers for the whole matrix, as text by name."""
        solution, floor = self._solution, self._asked.floor
        short = floor - self.proven_eigenvalue
        least = f"{floor:g}" if short <= 0 else f"{floor:g} - {short:.1e}" if floor else f"-{short:.1e}"
        diagonal = f"off by {self.diagonal_error:.1e}" if self.diagonal_error else "exact"
        seconds, known = solution.timings.get("total", 0.0), summary(solution.accuracy)
        return {
            "change": f"{self.distance:.4g} in the Frobenius norm, {self.relative:.2%} of the given matrix; "
            f"largest of an entry {self.largest:.4g}",
            "spectrum before": _spectrum_text(self.spectrum_before),
            "spectrum after": _spectrum_text(self.spectrum_after),
            **_requested(self._asked, self.change),
            **({"left out": ", ".join(map(str, solution.left_out))} if solution.left_out else {}),
            "proof": f"all eigenvalues are at least {least}, by a Cholesky factorization",
            "diagonal": diagonal,
            "optimum": f"value {solution.value:.8g}, bound {solution.dual_value:.8g}, certified gap "
            f"{solution.gap:.1e}",
            **({} if known is None else {"accuracy": known}),
            "effort": f"{solution.iterations} iterations of {solution.solver}, {seconds:.3g} s",
        }

    def tables(self, shown: int) -> list[Table]:
        """Return captions, titles, cells and the number of columns of text of the tables by label."""
        i, j = self._order
        pairs, rows = len(i), len(self.after)
        k = min(shown, pairs)
        cells: list[tuple[str, ...]] = []
        for a, b, note in zip(i[:k], j[:k], self._notes(i[:k], j[:k]), strict=True):
            known = np.isfinite(self.before[a, b])
            before = f"{self.before[a, b]:.4f}" if known else "unknown"
            names = str(self.labels[a]), str(self.labels[b])
            cells.append((*names, before, f"{self.after[a, b]:.4f}", f"{self.change[a, b]:+.4f}", note))
        columns = self._rows_columns()
        sums: list[tuple[str, ...]] = [
            (str(label), *(f"{columns[name][r]:.4f}" for name in _ROWS[1:]))
            for r, label in enumerate(columns["row"][:shown])
        ]
        return [
            (caption("pairs", k, pairs), _PAIRS, cells, 2),
            (caption("rows", len(sums), rows), _ROWS, sums, 1),
        ]

    @cached_property
    def _order(self) -> tuple[IntArray, IntArray]:
        """The pairs above the diagonal, those that changed most first."""
        i, j = np.triu_indices(len(self.after), 1)
        order = np.argsort(-np.abs(self.change[i, j]), kind="stable")
        return i[order], j[order]

    def _notes(self, i: IntArray, j: IntArray) -> list[str]:
        """Return for each pair whether it was unknown, or is fixed or at a bound."""
        n, asked = len(self.after), self._asked
        fixed, lower, upper = np.zeros((n, n), dtype=bool), np.full((n, n), -np.inf), np.full((n, n), np.inf)
        kept, bounded, unit = asked.fixed, asked.bounded, asked.unit
        fixed[kept.i, kept.j] = True
        lower[bounded.i, bounded.j], upper[bounded.i, bounded.j] = bounded.lo, bounded.hi
        near = _NEAR * float(np.abs(self.after).max())
        rules = (
            (np.isnan(self.before), "unknown before"),
            (fixed, "fixed"),
            (self.after <= lower * unit + near, "at lower bound"),
            (self.after >= upper * unit - near, "at upper bound"),
        )
        masks = [mask[i, j] for mask, _ in rules]
        return np.select(masks, [text for _, text in rules], "").tolist()

    def _drawn(self) -> NDArray[np.object_]:
        return self._solution.plot()

    def _columns(self, table: str) -> Any:
        if table == "covariance":
            return self.after, self.labels
        if table == "correlation":
            scale = np.sqrt(self.after.diagonal())
            return self.after / np.outer(scale, scale) if self._is_covariance else self.after, self.labels
        return getattr(self, f"_{table}_columns")()

    def _pairs_columns(self) -> dict[str, Any]:
        i, j = self._order
        entries = {"before": self.before[i, j], "after": self.after[i, j], "change": self.change[i, j]}
        names = [self.labels[a] for a in i], [self.labels[b] for b in j]
        return {"row": names[0], "column": names[1], **entries, "note": self._notes(i, j)}

    def _rows_columns(self) -> dict[str, Any]:
        known = np.isfinite(self.before)  # sums before and after are of the same entries
        sums = [np.where(known, M, 0.0).sum(axis=1) for M in (self.before, self.after)]
        total = np.abs(self.change).sum(axis=1)
        order = np.argsort(-total, kind="stable")
        columns = (sums[0], sums[1], self.change.sum(axis=1), total)
        return {
            "row": [self.labels[k] for k in order],
            **{name: column[order] for name, column in zip(_ROWS[1:], columns, strict=True)},
        }

    def _spectrum_columns(self) -> dict[str, Any]:
        return {"before": self.spectrum_before[::-1], "after": self.spectrum_after[::-1]}

    def _summary_columns(self) -> dict[str, Any]:
        solution, known = self._solution, self._solution.accuracy
        numbers = {
            "distance": self.distance,
            "relative distance": self.relative,
            "largest change": self.largest,
            "smallest eigenvalue before": self.spectrum_before[0],
            "smallest eigenvalue after": self.spectrum_after[0],
            "proven lower bound on the eigenvalues": self.proven_eigenvalue,
            "negative eigenvalues before": float((self.spectrum_before < 0).sum()),
            "condition number before": _condition(self.spectrum_before),
            "condition number after": _condition(self.spectrum_after),
            "diagonal error": self.diagonal_error,
            "value": solution.value,
            "proven bound": solution.dual_value,
            "certified gap": solution.gap,
            "certified distance of an entry": known.largest if isinstance(known, Accuracy) else float("nan"),
            "seconds": solution.timings.get("total", 0.0),
        }
        return {"quantity": list(numbers), "value": list(numbers.values())}


def _requested(asked: Request, change: Array) -> dict[str, str]:
    """Return what was asked of the answer besides nearness, as text by name; `change` is of each entry."""
    facts, i, j = {}, asked.fixed.i, asked.fixed.j
    if asked.floor > 0:
        facts["floor"] = f"{asked.floor:g}"
    if len(i):
        largest = np.abs(change[i, j]).max()
        facts["kept"] = f"{_counted(len(i), 'entry', 'entries')}, largest change {largest:.1e}"
    if asked.unknown is not None:
        facts["unknown"] = _counted(int(asked.unknown.sum()) // 2, "pair", "pairs")
    return facts


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _spectrum_text(eigenvalues: Array) -> str:
    """Return the range of a spectrum, ascending, its negative part and condition, as text."""
    if np.isnan(eigenvalues).any():
        return "not defined, as entries are unknown"
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    negative = int((eigenvalues < -_round_off(eigenvalues)).sum())
    kappa = _condition(eigenvalues)
    shown = f"condition number {kappa:.3g}" if np.isfinite(kappa) else "singular"
    some = f"{negative} of {len(eigenvalues)} negative" if negative else "none negative"
    return f"{low:.4g} to {high:.4g}, {some}, {shown if not negative else 'indefinite'}"


def _condition(eigenvalues: Array) -> float:
    """Return the condition number; infinite if the smallest eigenvalue is zero up to round-off."""
    low, high = float(np.abs(eigenvalues).min()), float(np.abs(eigenvalues).max())
    return high / low if low > _round_off(eigenvalues) else float("inf")


def _round_off(eigenvalues: Array) -> float:
    return len(eigenvalues) * float(np.finfo(float).eps) * float(np.abs(eigenvalues).max())


def bracketed(
    value: float, lower: float, scale: float, tol: float, begin: float, residual: float = 0.0, **fields: Any
) -> Solution:
    """Return the solution; it is optimal if the gap and the residual of its rows meet the tolerance.

    `lower` is a bound on the optimum, `scale` that of the objective, and `begin` when the work began.
    """
    certificate = bracket(value, min(lower, value), resolution=_RESOLUTION * scale, primal_residual=residual)
    stop = StopReason.CONVERGED if certificate.meets(tol) else StopReason.STALLED
    return Solution(
        status=certificate.status(tol, stop).value,
        stop_reason=stop.value,
        **(certificate.fields | {"value": value, "dual_value": lower}),
        timings={"total": time.perf_counter() - begin},
        history={},
        **fields,
    )
