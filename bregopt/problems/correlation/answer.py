"""The answer to a nearest correlation or covariance problem: a solution that knows what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bregopt.arrays import Array, Mask
from bregopt.cache import cached_property
from bregopt.io.pandas_labels import Labels
from bregopt.plotting import Axes, plot_correlation
from bregopt.problems.correlation.request import Request
from bregopt.problems.nearest_arguments import BoundedEntries
from bregopt.program import Matrix
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.problems.correlation.report import CorrelationReport
    from bregopt.problems.correlation.suggest import Suggestion

__all__ = ["Asked", "CorrelationSolution", "reportable"]


@dataclass(frozen=True, eq=False)
class Asked:
    """The data of one problem, as a report needs them.

    Parameters
    ----------
    A : array of shape (n, n), or LowRank
    unknown : boolean array of shape (n, n), or None
        The entries that are not known.
    labels : pandas.Index or None
    fixed, bounded : BoundedEntries
    min_eigenvalue : float
    diagonal : array of shape (n,)
        The diagonal that the answer is to have.
    """

    A: Matrix
    unknown: Mask | None
    labels: Labels
    fixed: BoundedEntries
    bounded: BoundedEntries
    min_eigenvalue: float
    diagonal: Array

    @classmethod
    def of(cls, request: Request) -> Asked:
        """Return what a request asks, in the units of its covariances if it has them."""
        A, fixed, bounded = request.A, request.fixed, request.bounded
        diagonal = np.ones(request.n)
        if request.scale is not None:
            unit, diagonal = np.outer(request.scale, request.scale), request.scale**2
            A = np.asarray(A) * unit
            fixed, bounded = (
                replace(own, lo=own.lo * unit[own.i, own.j], hi=own.hi * unit[own.i, own.j])
                for own in (fixed, bounded)
            )
        return cls(A, request.unknown, request.labels, fixed, bounded, request.floor, diagonal)

    @property
    def before(self) -> Array:
        """The given matrix, NaN where it is unknown."""
        A = np.asarray(self.A)
        return A if self.unknown is None else np.where(self.unknown, np.nan, A)


@dataclass(frozen=True, eq=False, repr=False)
class CorrelationSolution(Solution):
    """A :class:`Solution` that knows the matrix from which it started, and says what changed.

    Attributes
    ----------
    suggestion : Suggestion or None
        The nearest request that works, if the request is infeasible and ``suggest=True``.
    """

    suggestion: Suggestion | None = None
    _asked: Asked | None = field(default=None, repr=False)
    _request: Request | None = field(default=None, repr=False)  # of an answer that was not declared

    @cached_property
    def _in_program(self) -> Solution | None:
        """The answer in the terms of its problem, which is declared when it is asked for."""
        request = self._request
        if self._raw is not None or request is None or self.X is None or self.duals is None:
            return self._raw
        from bregopt.problems.correlation.solve import declared, units_of  # only those who ask for it wait

        problem, units = declared(request), units_of(request)
        Y = np.asarray(self.X) if units is None else units.of_program(np.asarray(self.X))
        known = {name: getattr(self, name) for name in field_names(Solution)}
        known |= {"X": (Y,), "u": np.zeros(0), "duals": -np.concatenate([np.ravel(v) for v in self.duals])}
        return Solution(**known | {"_program": problem.program(), "_compiled": problem._compiled})

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
        from bregopt.problems.correlation.report import CorrelationReport  # only those who ask for it wait

        return CorrelationReport.of(self, self._data)

    def plot(self, ax: Sequence[Axes] | None = None) -> NDArray[np.object_]:  # type: ignore[override]
        """Draw the matrix before, after, and the change, and both spectra.

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
        data = self._data
        return plot_correlation(data.before, np.asarray(self.X), data.labels, ax)

    @property
    def _data(self) -> Asked:
        if self.X is None:
            raise ValueError(f"there is no answer to report: the status is {self.status}. {self.stop_reason}")
        assert self._asked is not None
        return self._asked


def reportable(
    solution: Solution,
    asked: Asked | None,
    suggested: Suggestion | None = None,
    request: Request | None = None,
) -> CorrelationSolution:
    """Return a solution that knows its data, and the `request` whose problem was not declared."""
    known = {name: getattr(solution, name) for name in field_names(Solution)}
    return CorrelationSolution(**known, suggestion=suggested, _asked=asked, _request=request)
