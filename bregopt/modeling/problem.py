"""The problem that a user declares: solve, explain, translate, print."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.modeling.compile import compile_problem
from bregopt.modeling.compiled import Compiled
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Operand
from bregopt.modeling.largest_eigenvalue import EigenvalueBound
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import Parameter, Variable
from bregopt.program import Program
from bregopt.routes import routing
from bregopt.routes.options import time_limit
from bregopt.routes.solution import Solution

__all__ = ["Declared", "Problem"]

Declared = Constraint | EigenvalueBound | SecondOrderConstraint


class Problem:
    """Minimize or maximize an objective subject to constraints.

    Parameters
    ----------
    objective : Minimize or Maximize
    constraints : iterable of Constraint, EigenvalueBound and SecondOrderConstraint, optional
        Nested lists are flattened, and duplicates are dropped.

    Attributes
    ----------
    solution : Solution or None
        The last answer.

    Raises
    ------
    TypeError, ValueError
        If the objective or a constraint has another type, or no matrix variable occurs.

    Examples
    --------
    >>> import bregopt as bo
    >>> X = bo.PSD(2)
    >>> prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, [[1, 2], [2, 1]])), [bo.diag(X) == 1])
    >>> round(prob.solve().value, 6)
    2.0
    """

    def __init__(self, objective: Minimize, constraints: Iterable[Any] = ()) -> None:
        if not isinstance(objective, Minimize):
            raise TypeError(
                f"objective is {type(objective).__name__}; expected bo.Minimize(...) or bo.Maximize(...)"
            )
        self.objective = objective
        self.constraints: tuple[Declared, ...] = tuple(dict.fromkeys(_flattened(constraints)))
        self._compiled: Compiled = compile_problem(objective, self.constraints)
        self.solution: Solution | None = None
        self._raw: Solution | None = None

    @property
    def matrices(self) -> tuple[Any, ...]:
        """The matrix variables, in the order in which they occur."""
        return tuple(X.whole for X in self._compiled.matrices if not X.is_slack)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The ordinary variables, in the order in which they occur."""
        return self._compiled.variables

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in the order in which they occur."""
        return self._compiled.parameters

    @property
    def value(self) -> float | None:
        """The objective of the last answer, None before the first."""
        return None if self.solution is None else self.solution.value

    @property
    def status(self) -> str | None:
        """The status of the last answer in CVXPY's words, None before the first."""
        return None if self.solution is None else self.solution.status

    def program(self) -> Program:
        """Return the program that solvers receive, at the current values of the parameters."""
        return self._compiled.program()

    def solve(self, solver: Any = "auto", *, warm_start: bool | Solution = False, **options: Any) -> Solution:
        """Solve the problem, set the values of its variables and constraints, and return the answer.

        Parameters
        ----------
        solver : str or solver class
            "auto" selects the first registered route that accepts the problem; see :meth:`explain`.
        warm_start : bool or Solution
            True starts from this problem's last answer; a :class:`Solution` of a problem with the same
            variables and rows starts from that solution. The start includes the multipliers.
        **options
            Every route has ``tol`` (1e-6), ``max_iter``, ``time_limit`` (seconds), ``verbose``, ``seed`` and
            ``rank_tol``. The page of a route lists its own options. Unknown names raise a TypeError.

        Returns
        -------
        Solution

        Raises
        ------
        UnsupportedProblemError
            If the chosen route, or every route, does not accept the problem; the message gives the reason.
        InfeasibleRowError
            If one row alone contradicts ``X psd`` or the range of ``X0``.
        TypeError, ValueError
            If the solver or an option is unknown, or has a bad value.

        Warns
        -----
        ConvergenceWarning
            If the answer's certificate does not meet the tolerance.
        """
        if not isinstance(warm_start, bool | Solution):
            raise TypeError(
                f"warm_start is {warm_start!r}; expected True, False or the Solution of a like problem"
            )
        start = warm_start._raw if isinstance(warm_start, Solution) else self._raw if warm_start else None
        with clock.limited(time_limit(options)):
            raw = routing.solve(self.program(), solver, start=start, **options)
        self._raw = raw
        self.solution = self._unpack(raw)
        return self.solution

    def explain(self, solver: Any = "auto", **options: Any) -> None:
        """Print each registered route, whether it accepts the problem, and if not, the reason.

        Parameters
        ----------
        solver : str or solver class
        **options
            As for :meth:`solve`, which would run the marked route with them.

        Raises
        ------
        TypeError, ValueError
            If the solver or an option is unknown, or has a bad value.
        """
        sys.stdout.write(f"{routing.explain(self.program(), solver, **options)}\n")

    def to_cvxpy(self) -> Any:
        """Return this problem as a ``cvxpy.Problem`` with one vectorized constraint for each of this problem.

        Bounds on largest eigenvalues come last. Variables and parameters in bounds keep their names; ordinary
        variables and parameters become vectors. Other parameters are replaced by their current values. A
        problem with a ``LowRank`` start is returned on its range space.

        Returns
        -------
        cvxpy.Problem

        Raises
        ------
        ValueError
            If a parameter has no value, or bounds cross.
        """
        return routing.translate(self.program(), "cvxpy")

    def _unpack(self, raw: Solution) -> Solution:
        """Return the answer with the user's signs and names, and set the values of variables and duals."""
        found = raw.X is not None
        blocks = self._compiled.matrices
        X = tuple(
            block.set_answer(value)  # read-only, as the answer and the next warm start share it
            for block, value in zip(blocks, raw.X if found else [None] * len(blocks), strict=True)
            if not block.is_slack
        )
        values: dict[str, Any] = {}
        for u, place in self._compiled.variable_slices():
            part = raw.u[place].reshape(u.shape) if found else None
            u._value = float(part) if part is not None and u.shape == () else part
            values[u.name] = u.value
        for c, place in self._compiled.constraint_slices():
            c.dual_value = None if raw.duals is None else c.dual_from_multiplier(raw.duals[place])
        z = _multipliers_of_cones(raw)
        for cone, place in self._compiled.cone_slices():
            cone.set_multipliers(None if z is None else z[place])
        sign = self.objective.sign
        return replace(
            raw,
            value=sign * raw.value,
            dual_value=sign * raw.dual_value,
            X=(X[0] if len(X) == 1 else X) if found else None,
            u=values,
            duals=tuple(c.dual_value for c in self.constraints) if raw.duals is not None else None,
            _raw=raw,
        )

    def __str__(self) -> str:
        """Return the problem as text: the objective, a line for each constraint, and the variables."""
        constraints = [f"{c.label}{f'   ({c.size} rows)' if c.size > 1 else ''}" for c in self.constraints]
        matrices = [f"{X.name} {X.n} x {X.n} {X.kind}" for X in self.matrices]
        variables = [f"{u.name}{f' {u.shape}' if u.shape else ''}" for u in self.variables]
        lines = [f"{type(self.objective).__name__.lower():<12}{self.objective.label}"]
        lines += [f"{'' if k else 'subject to':<12}{text}" for k, text in enumerate(constraints)]
        return "\n".join([*lines, f"{'over':<12}{', '.join(matrices + variables)}"])

    def __repr__(self) -> str:
        rows = _counted(sum(c.size for c in self.constraints), "row")
        orders = ", ".join(f"{X.name}: {X.n} x {X.n}" for X in self.matrices)
        constraints = _counted(len(self.constraints), "constraint")
        return f"Problem({self.objective!r}, {constraints} with {rows}, {orders})"


def _multipliers_of_cones(raw: Solution) -> Array | None:
    """Return the reduced costs of the variables in cones; for a Farkas vector those of zero costs."""
    if raw.duals is None:
        return None
    assert raw._program is not None
    program = raw._program
    costs = program.c if raw.X is not None else np.zeros(program.k)
    reduced: Array = (costs - program.B.T @ raw.duals)[program.cones.index]
    return reduced


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _flattened(constraints: Any) -> Iterable[Declared]:
    if isinstance(constraints, Declared):
        yield constraints
        return
    if not isinstance(constraints, Iterable) or isinstance(constraints, str | bytes | np.ndarray | Operand):
        raise TypeError(f"a constraint is {constraints!r}; expected comparisons of expressions")
    for c in constraints:
        yield from _flattened(c)
