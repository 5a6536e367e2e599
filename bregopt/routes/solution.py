"""The answer: status, reason to stop, and certificate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, ArrayOrFrame
from bregopt.certify import Status, dimacs_errors, trace_of_slacks
from bregopt.certify.accuracy import Accuracy, has_closed_form
from bregopt.certify.eigenvalue_bound import LARGEST_FORMED
from bregopt.display import Axes, html_table, latex_table, plot_convergence
from bregopt.program import Answer, Declaration, LowRank, Program, StopReason
from bregopt.program.rows.base import Matrix
from bregopt.records import cached_property, dataclass
from bregopt.routes.accuracy import Units, accuracy_of, summary

if TYPE_CHECKING:
    from bregopt.rigorous.file.certificate import TraceProfile, Verification
    from bregopt.rigorous.fractions.rational import RationalAnswer
    from bregopt.routes.conflict import Conflict
    from bregopt.routes.derivatives.derivative import Derivative
    from bregopt.routes.derivatives.optimum import Differentiability
    from bregopt.routes.registry import RouteOptions, SolverLike

__all__ = ["Ray", "Solution", "Status"]

MatricesLike = ArrayLike | tuple[ArrayLike, ...]

_OF_TERMS = " of the terms that cancel in both"
_LARGEST_SHOWN = 60  # order up to which the accuracy with weights of entries takes less than half a second
_RANK_TOL = 1e-9  # eigenvalues below this fraction of the largest do not count towards a rank


class Ray(NamedTuple):
    """A direction along which all rows stay satisfied and the objective improves without end.

    Parameters
    ----------
    X : array of shape (n, n), or a tuple of those
        Positive semidefinite.
    u : dict from str to float or array
        Ordinary variables by name.
    """

    X: Array | Any
    u: dict[str, Array | Any]

    @property
    def rank(self) -> int | Any:
        """The rank of the direction, or of each of its matrices."""
        return tuple(map(_rank, self.X)) if isinstance(self.X, tuple) else _rank(self.X)


@dataclass(frozen=True, eq=False)
class Solution:
    """An answer and its certificate.

    Its arrays are read-only, so that the certificate stays valid for them; ``sol.X.copy()`` is writable. A
    DataFrame is already a copy.

    Attributes
    ----------
    status : str
        Status of the answer; see :class:`bregopt.certify.Status`.
    stop_reason : str
        Reason why the route stopped, with advice.
    value : float
        Objective at the answer; ``inf`` (``-inf`` for a maximization) if it is infeasible.
    X : array of shape (n, n), LowRank, or a tuple of those
        The matrix, or one for each matrix variable; None without an answer, ``()`` if no matrix is a variable
        (the problem has matrix inequalities only). ``LowRank`` if the problem started
        from one.
    u : dict from str to float or array
        Ordinary variables by name.
    duals : tuple of float or array
        One for each constraint, in CVXPY's signs; if the problem is infeasible, the Farkas vector that proves
        it. None if it is unbounded.
    duals_by_name : dict from str to float, array, Series or DataFrame
        The duals of the constraints with names; with the labels of a pandas bound.
    dual_value : float
        The proven bound on the optimal value.
    gap : float
        Certified: `error` relative to the larger of value and bound. Where both are small differences of
        large terms, it is relative to a hundredth of the largest term.
    primal_residual, dual_residual : float
        Largest relative violations; see :class:`bregopt.certify.Certificate`.
    error : float
        Largest difference of `value` from the optimum, from gap and violations, in the units of `value`;
        infinite where that is not known.
    iterations : int
        Cycles, rounds or steps of the route.
    timings : dict from str to float
        Seconds: "setup", "solve", "certify", "total".
    solver : str
        The route.
    history : dict from str to array
        One array for each recorded quantity.
    citation : str
        Reference of the method that ran.
    iteration_bound : float or None
        Bound on the iterations of the route for the tolerance, if its theory has one.
    ray : Ray or None
        If the problem is unbounded, a direction ``X``, ``u`` along which the objective improves without end.
    proof : Verification or None
        The proven bounds of an answer to ``solve(proven=True)``.
    dimacs : array of shape (6,) or None
        The errors of the 7th DIMACS challenge, the standard comparison of semidefinite solvers. None if not
        defined: for divergences, soft rows, and without an answer.
    """

    _heading: ClassVar[str] = "bregopt solution"

    status: str
    stop_reason: str
    value: float
    X: Array | Any
    u: dict[str, Array | Any] | Any
    duals: tuple[Array | Any, ...] | Any
    dual_value: float
    gap: float
    primal_residual: float
    dual_residual: float
    error: float
    iterations: int
    timings: dict[str, float]
    solver: str
    history: dict[str, Array]
    citation: str
    iteration_bound: float | None = None
    duals_by_name: dict[str, Array | Any] = field(default_factory=dict)
    ray: Ray | None = None
    proof: Verification | None = field(default=None, repr=False)
    _stop: StopReason | None = field(default=None, repr=False)  # without the route's detail
    _raw: Solution | None = field(default=None, repr=False)
    _program: Program | None = field(default=None, repr=False)  # the data that the certificate is of
    _S: Sequence[Array | None] | None = field(default=None, repr=False)  # of `Answer`
    _declarations: tuple[Declaration, ...] | None = field(default=None, repr=False)  # without an answer
    _inner: Answer | None = field(default=None, repr=False)  # of `Answer`, for proofs; not pickled
    _y_on_faces: Array | None = field(default=None, repr=False)  # likewise
    _ray: tuple[Array, ...] | None = field(default=None, repr=False)  # the matrices of the ray
    # The way to the answer of the problem that was solved, or why there is none, for derivatives.
    _restated: Any = field(default=None, repr=False)
    _compiled: Any = field(default=None, repr=False)  # the problem, for derivatives; not pickled
    _generated: bool = field(default=False, repr=False)  # whether bo.cut_rows may generate further rows
    _units: Units | None = field(default=None, repr=False)  # of X, where the program has others

    def __post_init__(self) -> None:
        _protect(vars(self).values())

    def __getstate__(self) -> dict[str, Any]:
        formed = ("_derivative", "_in_program", "accuracy", "_interval")  # when they were asked for
        kept = {name: value for name, value in vars(self).items() if name not in formed}
        return {**kept, "_compiled": None, "_inner": None, "_y_on_faces": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        _protect(state.values())  # pickle does not keep the flag
        vars(self).update(state)

    @property
    def _point(self) -> tuple[Any, Any, Any]:
        """``X``, ``u`` and the multipliers; a route's own answer has a tuple of matrices and two arrays."""
        return self.X, self.u, self.duals

    @property
    def _in_program(self) -> Solution | None:
        """The answer in the program's terms; None if it is not known, or this is that answer."""
        return self._raw

    @cached_property
    def rank(self) -> int | Any:
        """The rank of the answer, or of each of its matrices; None if there is none."""
        if isinstance(self.X, tuple):
            return tuple(_rank(part) for part in self.X)
        return None if self.X is None else _rank(self.X)

    @property
    def bound(self) -> float:
        """The proven bound on the optimal value, `dual_value` by the word of the cards."""
        return self.dual_value

    @property
    def residuals(self) -> dict[str, float]:
        """Primal and dual residual by name."""
        return {"primal": self.primal_residual, "dual": self.dual_residual}

    @cached_property
    def dimacs(self) -> Array | None:
        """The six DIMACS errors, see :func:`dimacs_errors`; None where they are not defined."""
        raw = self._in_program or self
        program = raw._program
        if program is None or raw.X is None or raw.duals is None:
            return None
        if any(program.divergences) or program.capped or not program.bounds.all_hard:
            return None
        errors = dimacs_errors(program, *raw._point)
        errors.setflags(write=False)
        return errors

    @cached_property
    def accuracy(self) -> Accuracy | tuple[Accuracy, ...] | None:
        """A certified bound on the distance of ``X`` from the optimum, entry by entry; one for each matrix.

        For nearness in the Frobenius norm, in LogDet or von Neumann, whose objective is strongly convex, it
        follows from value and bound (:mod:`bregopt.certify.accuracy`), with weights of entries up to order
        100 from the curvature of the cone, too (:mod:`bregopt.certify.weights`). For linear
        objectives, and small ones with weights, the theorem of Newton and Kantorovich proves it, with every
        rounding (:mod:`bregopt.rigorous.newton_kantorovich`). Where nothing can be said the bounds are
        infinite, and `reason` tells why. None without an answer. It is computed when it is first asked for.
        """
        return accuracy_of(self)

    def conflict(self, solver: SolverLike = "auto", **options: Unpack[RouteOptions]) -> Conflict:
        """Return an irreducible set of constraints that contradict each other, if the problem is infeasible.

        A deletion filter solves a problem for each constraint that may be in the conflict, and leaves it out
        if a Farkas vector of the rest is found. Each row of an array is a constraint of its own.

        Parameters
        ----------
        solver, **options
            Of these solves, as for :meth:`bregopt.Problem.solve`. `time_limit` is that of all of them.

        Returns
        -------
        Conflict

        Raises
        ------
        ValueError
            If the answer is not infeasible, or no contradiction is proven.
        """
        raw = self._in_program or self
        if self._declarations is None or raw._program is None or raw.duals is None:
            raise ValueError(f"the answer is {self.status}; expected an infeasible problem")
        from bregopt.routes.conflict import find_conflict  # it solves problems, so it is above this module

        return find_conflict(raw._program, self._declarations, raw._point[2], solver, options)

    def differentiability(self) -> Differentiability:
        """Return how far the answer is from one without a derivative.

        Returns
        -------
        Differentiability
            The smallest eigenvalue of ``X - Z``, multiplier and slack, all relative; its `margin` is the
            least of them.

        Raises
        ------
        ValueError
            If there is no answer, or derivatives of such a problem are not known.
        """
        return self._derivative.differentiability

    def derivative(self) -> Derivative:
        """Return the derivative of the answer in the data of its problem, by the implicit function theorem.

        Inequalities with a multiplier count as equalities. The answer is refined by Newton's method first, so
        the derivative has about ten digits for every `tol` of the solve.

        Returns
        -------
        Derivative
            With `vjp` and `jvp`, for matrices, ordinary variables and parameters.

        Raises
        ------
        ValueError
            If there is no answer, derivatives of such a problem are not known, or the answer has none: an
            eigenvalue, a multiplier or a slack is zero, or the answer is not unique.

        Warns
        -----
        DataWarning
            If the answer is near one without a derivative.
        """
        from bregopt.routes.derivatives.derivative import check_exists

        check_exists(self._derivative.differentiability, self._derivative.optimum.program, self.X)
        return self._derivative

    def vjp(self, G: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        """Return the gradient of ``<G, X>`` in the data: a vector-Jacobian product.

        Parameters
        ----------
        G : array_like of shape (n, n) or DataFrame, or a tuple of those
            The gradient of a function of the answer in ``X``; its symmetric part counts.

        Returns
        -------
        array or DataFrame of shape (n, n), or a tuple of those
            The gradient in the matrix that ``X`` is near to, symmetric; in the factor of a ``LowRank`` one,
            of its shape; for a linear objective that in the cost matrix.

        Raises
        ------
        TypeError, ValueError
            As :meth:`derivative`, or if `G` is no such matrix.
        """
        return self.derivative().vjp(G).data

    def jvp(self, dA: MatricesLike) -> ArrayOrFrame | tuple[ArrayOrFrame, ...]:
        """Return the change of ``X`` as the data change: a Jacobian-vector product.

        Parameters
        ----------
        dA : array_like or DataFrame of shape (n, n), or a tuple of those
            The change of the matrix that ``X`` is near to, or of the data that :meth:`vjp` names.

        Returns
        -------
        array or DataFrame of shape (n, n), or a tuple of those

        Raises
        ------
        TypeError, ValueError
            As :meth:`derivative`, or if `dA` is no such matrix.
        """
        return self.derivative().jvp(dA).X

    @cached_property
    def _derivative(self) -> Derivative:
        from bregopt.routes.derivatives.derivative import derivative_of  # only those who differentiate wait

        return derivative_of(self)

    def verify(
        self,
        *,
        resolve: bool = True,
        trace_bound: ArrayLike | None = None,
        eigenvalue_bound: ArrayLike | None = None,
        trace: float | None = None,
        exact: bool = False,
    ) -> Verification:
        """Return bounds on the optimum that are proven in spite of all rounding errors.

        The certificate of an answer is computed in floating point. Here every rounding is bounded: a lower
        bound by multipliers whose slack matrices are proven psd (Rump 2006), an upper one by a matrix that is
        proven to be near an exactly feasible one (Jansson, Chaykin and Keil 2007). The numbers of the
        compiled problem are exact as they stand in floating point. If parameters have intervals, the bounds
        hold for every value in them.

        Parameters
        ----------
        resolve : bool
            Whether to solve problems with a slightly smaller cone where the answer itself proves no bound.
        trace_bound, eigenvalue_bound : float or list of float, optional
            Upper bounds on the trace, or on the largest eigenvalue, of an optimal matrix that you know of
            (one for all matrices, or one for each). The lower bound of a minimization then holds if they do.
        trace : float, optional
            With it the bounds are those of the optimum given that the slacks ``C - A*(y)`` of the
            multipliers have traces that sum to at most this number. Where the rows leave ``X`` no interior,
            the optimum may drift as `y` grows, and have no proof of both sides; given a trace it has one.
            Only for linear objectives with hard rows; the problem is solved anew, and the other options but
            `exact` are not used.
        exact : bool
            Whether to solve small linear problems again with hundreds of digits, by FLINT, and to prove the
            bounds in fractions: often to the last digit of a double, also where the optimum is hardly
            attained. It needs ``pip install 'bregopt[exact]'``.

        Returns
        -------
        Verification
            With `lower`, `upper`, the `reasons` for sides that are not proven, and a `certificate`.

        Raises
        ------
        TypeError, ValueError
            If the answer has no program, a stated bound is not positive, or the problem is not one for
            `exact`.
        ImportError
            If `exact` is asked for, and python-flint is not installed.
        """
        from bregopt.routes.verification import (  # it solves problems, so it is above this module
            verified,
            verified_with_bounded_slack,
        )

        raw = self._in_program or self
        if raw._program is None:
            raise ValueError("the answer does not hold its problem; expected one of Problem.solve")
        if trace is not None:
            return verified_with_bounded_slack(raw._program, trace, exact)
        compiled = self._compiled or raw._compiled
        source = None if compiled is None else compiled.proof_data(raw._program)
        asked = exact or resolve is not True or trace_bound is not None or eigenvalue_bound is not None
        if raw.proof is not None and not asked and (source is None or not source[2]):
            return raw.proof
        found = verified(
            raw._program,
            raw,
            resolve,
            trace_bound,
            eigenvalue_bound,
            source,
            generated=self._generated,
            exact=exact,
        )
        vars(self)["_interval"] = found.lower, found.upper  # for the card
        return found

    def trace_profile(self, traces: ArrayLike = (1e2, 1e4, 1e6, 1e8), *, exact: bool = False) -> TraceProfile:
        """Return the proven optimum given a bound ``R`` on the traces of the slacks ``C - A*(y)``, by ``R``.

        It shows whether the optimum drifts as multipliers grow; see the `trace` of :meth:`verify`. It is
        infinite where no multipliers are so small.

        Parameters
        ----------
        traces : array_like of shape (k,)
            The bounds ``R``, positive.
        exact : bool
            As for :meth:`verify`.

        Returns
        -------
        TraceProfile

        Raises
        ------
        TypeError, ValueError
            As :meth:`verify` with `trace`.
        """
        from bregopt.rigorous.file.certificate import TraceProfile  # few ask

        bounds = np.unique(np.asarray(traces, dtype=float))
        found = [self.verify(trace=float(bound), exact=exact) for bound in bounds]
        lower, upper = (np.array([getattr(own, side) for own in found]) for side in ("lower", "upper"))
        return TraceProfile(bounds, lower, upper)

    def rational(self, denominator: int = 2**40) -> RationalAnswer:
        """Return an answer near this one in rational numbers, feasible exactly.

        It meets every row, and its matrices are psd, without a tolerance. A feasible matrix with room inside
        the cone is rounded to multiples of ``1 / denominator``, changed so that all equations hold, and
        proven psd (Peyrl and Parrilo 2008). Its value is a fraction: a bound on the optimum that needs no
        tolerance. The numbers of the problem are exact as they stand in floating point.

        Parameters
        ----------
        denominator : int
            Of the rounded entries; larger ones stay closer to the answer.

        Returns
        -------
        RationalAnswer
            With `X`, `u`, `value`, and the `factors` ``L``, ``d`` of each matrix.

        Raises
        ------
        TypeError
            If `denominator` is no positive integer.
        ValueError
            If there is no answer or no such point, with the reason: a nonlinear objective, no interior, or a
            denominator that is too small.
        """
        from bregopt.rigorous.fractions.rational import RationalAnswer, rational_point  # few ask

        if not isinstance(denominator, Integral) or denominator < 1:
            raise TypeError(f"denominator is {denominator!r}; expected a positive integer")
        raw = self._in_program or self
        if raw.X is None or raw._program is None:
            raise ValueError(f"the answer is {self.status}; expected one with matrices or variables")
        if raw._program.tangent is not None:
            raise ValueError("the objective or a row has entropies; expected a linear problem")
        if self._compiled is not None and self._compiled.is_complex:
            raise ValueError("the problem has complex variables; state it in real and imaginary parts")
        certificate = self.verify().certificate
        assert certificate is not None
        matrices, elements, value = rational_point(certificate, int(denominator))
        X, u = matrices, np.array(elements, dtype=object)
        if self._compiled is not None:
            X, u = self._compiled.named(matrices, u)
        value = -value if raw._program.maximize else value
        return RationalAnswer(X, u, value, int(denominator), matrices)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the gap and the residual against the iterations; returns the matplotlib axes."""
        return plot_convergence(self.history, self.solver, ax)

    def __repr__(self) -> str:
        facts = self._facts()
        lines = [f"{self._heading}: {facts['status']}"]
        if self.X is None:
            lines.append(f"  value      {facts['value']}")
        else:
            gap, residuals = facts["certified gap"], (facts["primal residual"], facts["dual residual"])
            lines.append(f"  value      {facts['value']}   bound {facts['bound']}   certified gap {gap}")
            lines.append("  residuals  primal {}   dual {}".format(*residuals))
        shown = [
            name
            for name in ("given", "clipped", "proven", "accuracy", "answer", "ray", "effort", "stopped")
            if name in facts
        ]
        return "\n".join([*lines, *(f"  {name:<10} {facts[name]}" for name in shown)])

    def _facts(self) -> dict[str, str]:
        """Return the facts that a card shows, by name."""
        noun = "iteration" if self.iterations == 1 else "iterations"
        facts = {"status": f"{self.status} ({self.solver})", "value": f"{self.value:.8g}"}
        if self.X is not None:
            facts |= {
                "bound": f"{self.dual_value:.8g}",
                "certified gap": f"{self.gap:.1e}" + (_OF_TERMS if self._cancels else ""),
                "primal residual": f"{self.primal_residual:.1e}",
                "dual residual": f"{self.dual_residual:.1e}",
            }
            if (trace := self._trace_of_slacks) is not None:
                facts["given"] = (
                    f"C - A*(y) of trace {trace:.1e}; trace_profile() shows if the optimum drifts"
                )
            known = summary(self.accuracy) if self._shows_accuracy else None
            if known is not None:
                facts["accuracy"] = known
            if self.proof is not None:
                facts["proven"] = self.proof.proven
            lower, upper = vars(self).get("_interval", (-np.inf, np.inf))
            if self.value < lower or self.value > upper:
                facts["value"] = f"{np.clip(self.value, lower, upper):.8g}"
                facts["clipped"] = (
                    f"{self.value:.8g} at X, which misses its constraints by {self.primal_residual:.1e}, "
                    "is outside of the interval that verify() proves"
                )
        facts["answer"] = _shape_text(self.X, self.rank)
        if self.ray is not None:
            facts["ray"] = _shape_text(self.ray.X, self.ray.rank)
        facts["effort"] = f"{self.iterations} {noun}, {self.timings.get('total', 0.0):.3g} s"
        facts["stopped"] = self.stop_reason
        return facts

    @property
    def _shows_accuracy(self) -> bool:
        """Whether the accuracy is known, or takes little time."""
        raw = self._in_program or self
        program = raw._program
        if "accuracy" in vars(self) or program is None:
            return "accuracy" in vars(self)
        largest = LARGEST_FORMED if has_closed_form(program) else _LARGEST_SHOWN
        return any(program.divergences) and max(block.n for block in program.blocks) <= largest

    @cached_property
    def _trace_of_slacks(self) -> float | None:
        """The trace of the slacks of multipliers far larger than the costs, None of others."""
        raw = self._in_program or self
        program, (X, _, y) = raw._program, raw._point
        if program is None or X is None or y is None or any(isinstance(X_b, LowRank) for X_b in X):
            return None
        return trace_of_slacks(program, y)

    @property
    def _cancels(self) -> bool:
        """Whether value and bound are differences of large terms, which `gap` is relative to."""
        program = (self._raw or self)._program
        constant = 0.0 if program is None else program.stated_constant * (-1.0 if program.maximize else 1.0)
        size = max(abs(self.value - constant), abs(self.dual_value - constant))
        return bool(np.isfinite(self.error) and self.error > 1.01 * self.gap * size)

    def _repr_html_(self) -> str:
        return html_table((), list(self._facts().items()), left=2)

    def _repr_latex_(self) -> str:
        facts = [fact for fact in self._facts().items() if fact[0] != "stopped"]  # LaTeX does not wrap it
        return f"$$\n{latex_table((), facts, left=2)}\n$$"


def _protect(values: Iterable[Any]) -> None:
    """Make every array among values read-only, also inside dicts and tuples."""
    found = [*values]
    for value in found:  # which grows meanwhile
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        elif isinstance(value, dict):
            found += value.values()
        elif isinstance(value, tuple):
            found += value


def _rank(X: Matrix) -> int:
    """Return the numerical rank."""
    eigenvalues = X.eigenvalues() if isinstance(X, LowRank) else np.linalg.eigvalsh(X)
    return int(np.sum(eigenvalues > _RANK_TOL * max(eigenvalues[-1], 0.0)))


def _shape_text(X: Any, rank: Any) -> str:
    if X is None:
        return "none"
    if isinstance(X, tuple) and not X:
        return "no matrix variable"
    if isinstance(X, tuple):
        return "; ".join(_shape_text(part, r) for part, r in zip(X, rank, strict=True))
    return f"X {X.shape[0]} x {X.shape[1]}, rank {rank}"
