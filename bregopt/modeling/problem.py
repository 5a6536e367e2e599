"""The problem that a user declares: solve, explain, export, print; its answer, in the user's terms."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.compilation.compile import compile_problem
from bregopt.modeling.compilation.parametric_program import Compiled
from bregopt.modeling.constraints import (
    Constraint,
    CutRows,
    MatrixInequality,
    SecondOrderConstraint,
    multiplier_of_cone,
)
from bregopt.modeling.convex.eigenvalues import EigenvalueBound
from bregopt.modeling.convex.expression import ConvexConstraint, Minimize
from bregopt.modeling.expressions import Operand
from bregopt.program import Program
from bregopt.records import replace
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.driver import warn_unproven
from bregopt.routes.registry import time_limit
from bregopt.routes.solution import Ray, Solution

if TYPE_CHECKING:
    import cvxpy

    from bregopt.rigorous.file.certificate import ProvenBound
    from bregopt.routes.registry import RouteOptions, SolverLike

Declared = (
    Constraint | ConvexConstraint | CutRows | EigenvalueBound | MatrixInequality | SecondOrderConstraint
)


class Problem:
    """Minimize or maximize an objective subject to constraints.

    Parameters
    ----------
    objective : Minimize or Maximize
    constraints : iterable of Constraint, CutRows, MatrixInequality, EigenvalueBound, ..., optional
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

    def __init__(
        self, objective: Minimize, constraints: Iterable[Declared | Iterable[Declared]] = ()
    ) -> None:
        if not isinstance(objective, Minimize):
            raise TypeError(
                f"objective is {type(objective).__name__}; expected bo.Minimize(...) or bo.Maximize(...)"
            )
        self.objective = objective
        self.constraints: tuple[Declared, ...] = tuple(_flattened(constraints))
        self._stated: list[Any] = []
        self._generates: list[Any] = []
        names = set()
        for c in self.constraints:
            if c.name is not None and c.name in names:
                raise ValueError(f"two constraints are called {c.name!r}; expected different names")
            names.add(c.name)
            (self._generates if isinstance(c, CutRows) else self._stated).append(c)
        self._compiled: Compiled = compile_problem(objective, self._stated)
        self.solution: Solution | None = None
        self._raw: Solution | None = None
        self._sharpest: Any = None  # of rounds of generated rows, the one with the best bound
        self._node: Any = ()  # answers of the last nodes of branch and bound

    @property
    def matrices(self) -> tuple[Any, ...]:
        """The matrix variables, in the order in which they occur."""
        return tuple(X.whole for X in self._compiled.matrices)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The ordinary variables, in the order in which they occur."""
        return tuple(u.whole for u in self._compiled.variables)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The parameters, in the order in which they occur."""
        return tuple(p.whole for p in self._compiled.parameters)

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

    def solve(
        self,
        solver: SolverLike = "auto",
        *,
        warm_start: bool | Solution = False,
        **options: Unpack[RouteOptions],
    ) -> Solution:
        """Solve the problem, set the values of its variables and constraints, and return the answer.

        Parameters
        ----------
        solver : str or solver class
            "auto" selects the first registered route that accepts the problem; see :meth:`explain`.
        warm_start : bool or Solution
            True starts from this problem's last answer; a :class:`Solution` of a problem with the same
            variables and rows starts from that solution. The start includes the multipliers.
        **options
            Every route has ``tol`` (1e-6), ``tol_X`` (of entries of ``X``, for nearness), ``max_iter``,
            ``time_limit`` (seconds), ``verbose``, ``callback``, ``progress``, ``seed`` and ``rank_tol``. The
            page of a route lists its own options. Unknown names raise a TypeError.

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
            If the solver or an option is unknown, or has a bad value. Exceptions of the callback reach the
            caller, too.

        Warns
        -----
        ConvergenceWarning
            If the answer's certificate does not meet the tolerance.
        """
        if not isinstance(warm_start, bool | Solution):
            raise TypeError(
                f"warm_start is {warm_start!r}; expected True, False or the Solution of a like problem"
            )
        known = warm_start._in_program if isinstance(warm_start, Solution) else self._raw
        start = known if warm_start else None
        return self._solve(solver, start, True, options)

    def _solve(self, solver: Any, start: Solution | None, warn: bool, options: Mapping[str, Any]) -> Solution:
        """Solve from an answer in the program's terms; a caller that reports the status does not `warn`."""
        with clock.limited(time_limit(options)):
            if self._generates:
                if options.get("proven"):
                    raise UnsupportedProblemError(
                        "bo.cut_rows may generate further rows, so that no point is proven to be feasible; "
                        "leave out proven=, sol.verify() proves the bound of the multipliers"
                    )
                self.solution = self._in_rounds(solver, start, options)
                if warn:
                    warn_unproven(self.solution, options.get("tol", Settings.tol))
                return self.solution
            raw = routing.solve(self.program(), solver, start=start, warn=warn, **options)
        self._raw = raw
        self.solution = translated(raw, self._compiled, self.constraints, self.objective.sign)
        return self.solution

    def _in_rounds(self, solver: Any, start: Solution | None, options: Mapping[str, Any]) -> Solution:
        """Solve with the rows that are generated, which then are rows of the program."""
        from bregopt.modeling.compilation.rounds import Rounds  # only those who generate rows wait

        rounds = Rounds(self, solver, options)
        answer = rounds.solve(start)
        solved = rounds.current
        self._compiled, self._raw, self._sharpest = solved._compiled, solved._raw, rounds.sharpest
        return replace(
            answer,
            _generated=True,
            duals=None if answer.duals is None else tuple(c.dual_value for c in self.constraints),
            duals_by_name=answer.duals_by_name | {c.name: c.dual_value for c in self._generates if c.name},
        )

    def _with_rows(self, rows: Iterable[Constraint]) -> Problem:
        """Return the problem with rows in place of those that generate them."""
        return Problem(self.objective, [*self._stated, *rows])

    def bound(self, fixings: Mapping[Any, Any] = MappingProxyType({}), **options: Any) -> ProvenBound:
        """Return a proven bound of the problem with some rows and variables fixed, for branch and bound.

        The solve starts from the last answer of this method. The bound counts all rounding, as that of
        :meth:`Solution.verify` does: no point of the fixed problem is better, so that a node may be cut off
        safely. Multipliers of earlier nodes prove bounds of this one, too, and the best bound is returned.
        Values of variables and constraints are not set.

        Parameters
        ----------
        fixings : mapping from Constraint, Variable or name to array_like
            Values that hard rows, or variables, are fixed to; NaN leaves an element free. A row must have the
            value between its bounds.
        **options
            Of the solve, as for :meth:`solve`, `solver` included.

        Returns
        -------
        ProvenBound
            Its `value`: a lower bound of a minimization, an upper bound of a maximization; infinite for a
            problem that is proven infeasible. Its `X` and `u` are the answer of the solve.

        Raises
        ------
        TypeError, ValueError
            If a fixing has another shape or type, or is outside its bounds.
        """
        from bregopt.modeling.compilation.parametric_program import fixed  # only those who prove bounds wait
        from bregopt.rigorous.file.certificate import ProvenBound
        from bregopt.routes.verification import node_bound

        program = fixed(self._compiled, self.program(), fixings)
        found, self._node = node_bound(program, self._node, options)
        X, u = (None, {}) if found.answer is None else self._compiled.named(*found.answer._point[:2])
        return ProvenBound(self.objective.sign * found.value, found.reason, X, u)

    def explain(self, solver: SolverLike = "auto", **options: Unpack[RouteOptions]) -> None:
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

    def to_cvxpy(self) -> cvxpy.Problem:
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

    def to_spec(self, path: str | PathLike[str]) -> None:
        """Write the problem to a spec file, which :func:`bregopt.load_spec` reads.

        Its structure is readable TOML; its arrays are in an ``.npz`` file beside it, of the same name. The
        program of the problem that is read back has the same numbers, bit by bit; an atom that
        stands in several places is read back as several. Labels of rows are kept if they are strings or
        integers.

        Parameters
        ----------
        path : str or Path
            A name that ends with ``.toml``. Files of these names are replaced.

        Raises
        ------
        TypeError, ValueError
            If the name has another ending, or a part of the problem is of a class that specs do not know.
        """
        from bregopt.io.spec_writer import (
            write_spec,
        )  # the one arrow up: files are written above the language

        write_spec(
            path, self.objective, self.constraints, (*self.matrices, *self.variables, *self.parameters)
        )

    def __str__(self) -> str:
        """Return the problem as text, in mathematical symbols if the terminal has them."""
        from bregopt.modeling.notation import as_text  # only those who print problems wait for it

        return as_text(self)

    def _repr_latex_(self) -> str:
        from bregopt.modeling.notation import as_latex

        return f"$$\n{as_latex(self)}\n$$"

    def _repr_html_(self) -> str:
        from bregopt.modeling.notation import as_html

        return as_html(self)

    def __repr__(self) -> str:
        rows = _counted(sum(c.size for c in self.constraints), "row")
        constraints = _counted(len(self.constraints), "constraint")
        orders = [f"{X.name}: {X.n} x {X.n}" for X in self.matrices]
        return f"Problem({', '.join([repr(self.objective), f'{constraints} with {rows}', *orders])})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _flattened(constraints: Any) -> dict[Declared, None]:
    """Return the constraints in nested iterables, each once."""
    if isinstance(constraints, Declared):
        return {constraints: None}
    if not isinstance(constraints, list | tuple | Iterable) or isinstance(
        constraints, str | bytes | np.ndarray | Operand
    ):
        raise TypeError(f"a constraint is {constraints!r}; expected comparisons of expressions")
    found: dict[Declared, None] = {}
    for c in constraints:
        found |= {c: None} if isinstance(c, Declared) else _flattened(c)
    return found


# --- The answer of a program, in the user's terms -------------------------------------------------------


def translated(raw: Solution, compiled: Compiled, constraints: Sequence[Any], sign: float) -> Solution:
    """Return the answer with the user's signs and names, and set the values of variables and duals.

    Parameters
    ----------
    raw : Solution
        Of the program, which is a minimization.
    compiled : Compiled
    constraints : sequence of constraints
        As the user declared them.
    sign : float
        1 for a minimization, -1 for a maximization.

    Returns
    -------
    Solution
    """
    found = raw.X is not None
    own, u = _set_variables(raw, compiled)
    y, z = raw._point[2], _multipliers_of_cones(raw)
    _set_duals(raw, compiled, y, z)
    declarations = None if found else compiled.declarations(constraints)
    stop_reason = raw.stop_reason
    if raw.status == "infeasible" and declarations is not None and raw._program is not None:
        from bregopt.routes.conflict import with_largest

        stop_reason = with_largest(stop_reason, raw._program, declarations, y)
    return replace(
        raw,
        stop_reason=stop_reason,
        value=sign * raw.value,
        dual_value=sign * raw.dual_value,
        X=_one_or_all(own),
        u=u,
        duals=tuple([c.dual_value for c in constraints]) if raw.duals is not None else None,
        duals_by_name={c.name: _with_labels(c) for c in constraints if c.name is not None},
        _raw=raw,
        ray=None if raw._ray is None else Ray(*compiled.named(raw._ray, raw._point[1])),
        _declarations=declarations,
        _compiled=compiled,
    )


def _set_variables(raw: Solution, compiled: Compiled) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Set the values of all variables; return those of the matrices, if any, and of the others by name."""
    found, blocks, elements = raw.X is not None, compiled.matrices, raw._point[1]
    given = raw.X[: len(blocks)] if found else [None] * len(blocks)
    # The arrays are read-only, as the answer and the next warm start share them.
    answers = tuple([X.set_answer(value) for X, value in zip(blocks, given, strict=True)])
    values: dict[str, Any] = {}
    for u, place in compiled.variable_slices:
        u._value = u.with_elements(elements[place]) if found else None
        values[u.name] = u.whole.value
    return answers if found else None, values


def _set_duals(raw: Solution, compiled: Compiled, y: Array | None, z: Array | None) -> None:
    """Set the duals of all constraints by the multipliers of rows and cones."""
    for c, place in compiled.constraint_slices:
        c.dual_value = None if y is None else c.dual_from_multiplier(y[place])
    for cone, place in compiled.cone_slices:
        cone.set_multipliers(None if z is None else z[place])
    for inequality, b in compiled.inequalities:
        inequality.dual_value = None
        if y is not None and raw._program is not None:
            X, S = (None if part is None else part[b] for part in (raw.X, raw._S))
            inequality.dual_value = multiplier_of_cone(raw._program, b, X, y, S)
    compiled.set_convex_duals(y, z)


def _multipliers_of_cones(raw: Solution) -> Array | None:
    """Return the reduced costs of the variables in cones; for a Farkas vector those of zero costs."""
    if raw.duals is None:
        return None
    assert raw._program is not None
    program = raw._program
    if not program.cones.count:
        return np.zeros(0)
    costs = program.c if raw.X is not None else np.zeros(program.k)
    reduced: Array = (costs - program.Bt @ raw.duals)[program.cones.index]
    return reduced


def _with_labels(c: Any) -> Any:
    """Return the dual of a constraint, with the labels of the data that it was declared with."""
    axes = getattr(c, "axes", None)
    if axes is None or c.dual_value is None:
        return c.dual_value
    pandas = importlib.import_module("pandas")
    return (pandas.Series if len(axes) == 1 else pandas.DataFrame)(np.array(c.dual_value), *axes)


def _one_or_all(X: Any) -> Any:
    """Return the matrix, a tuple of several, or None."""
    return X if X is None else X[0] if len(X) == 1 else tuple(X)
