"""What ellipsoids, designs and capacities share: a status by a proven gap, read-only arrays, and drawings.

Matplotlib is imported when one is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, finite_array
from bregopt.certify import Certificate
from bregopt.display import one_axes
from bregopt.errors import ConvergenceWarning, warn_caller
from bregopt.program import StopReason
from bregopt.records import dataclass

# Of the palette of Okabe and Ito, told apart by all eyes.
_OUTLINE, _CONTACT, _LEVEL = "#0072B2", "#D55E00", "#009E73"
_MARKER = 70.0  # square points of a marker of weight one
_SMALLEST = 8.0
_NAMED = 20  # candidates that a plot names
_SIZE = (5, 3.8)  # of a figure, in inches


@dataclass(frozen=True, eq=False, repr=False)
class ProvenAnswer:
    """The base of ellipsoids, designs and capacities. Arrays are read-only, so that the proof stays valid.

    Attributes
    ----------
    status : str
        "optimal" if `gap` is at most the tolerance; see :class:`bregopt.certify.Status`.
    stop_reason : str
        Why the method stopped, with advice.
    gap : float
        Proven, computed from the data.
    iterations : int
        Newton steps.
    """

    title: ClassVar[str]

    status: str
    stop_reason: str
    gap: float
    iterations: int

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()  # pickle does not keep the flag

    def __repr__(self) -> str:
        facts = {**self._facts(), "stopped": self.stop_reason}
        lines = [f"bregopt {self.title}: {self.status}"]
        return "\n".join([*lines, *(f"  {name:<11} {fact}" for name, fact in facts.items())])

    def _facts(self) -> dict[str, str]:
        """Return what the card shows, by name."""
        raise NotImplementedError


def verdict(gap: float, tol: float, name: str) -> dict[str, Any]:
    """Return the fields of an answer that follow from its gap; warn where it is above the tolerance.

    Parameters
    ----------
    gap, tol : float
    name : str
        The function, for the warning.
    """
    certificate = Certificate(math.nan, math.nan, gap, 0.0, 0.0, math.nan)
    reason = StopReason.TIME_LIMIT if clock.remaining() <= 0 else StopReason.STALLED
    reason = StopReason.CONVERGED if certificate.meets(tol) else reason
    status = certificate.status(tol, reason)
    if reason is not StopReason.CONVERGED:
        warn_caller(f"{name}: {status}, gap {gap:.1e}. {reason}", ConvergenceWarning)
    return {"status": status.value, "stop_reason": reason.value, "gap": gap}


def draw_ellipse(
    boundary: Array,
    center: Array,
    points: Array | None,
    touching: Array | None,
    sides: Array | None,
    names: Sequence[Any],
    ax: Any = None,
) -> Any:
    """Draw an ellipse with points or a polygon.

    Parameters
    ----------
    boundary : array of shape (count, 2)
        Of the ellipse.
    center : array of shape (2,)
    points : array of shape (m, 2), optional
    touching : array of shape (k, 2), optional
        The points that the ellipse touches.
    sides : array of shape (s, 2), optional
        The corners of a polygon in order.
    names : sequence of length 2
        Of the axes.
    ax : matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    matplotlib axes
    """
    ax = one_axes(ax, _SIZE)
    if sides is not None:
        ax.fill(*sides.T, facecolor="0.93", edgecolor="0.3", lw=1)
    if points is not None:
        ax.plot(*points.T, ".", ms=4, color="0.55", zorder=1)
    ax.plot(*boundary.T, color=_OUTLINE, lw=1.5)
    ax.plot(*center, "+", ms=8, color=_OUTLINE)
    if touching is not None:
        ax.plot(*touching.T, "o", ms=6, mfc="none", mew=1.5, color=_CONTACT)
    ax.set(xlabel=str(names[0]), ylabel=str(names[1]))
    return ax


def draw_design(
    sensitivity: Array,
    weights: Array,
    level: float,
    X: Array | None,
    places: Any,
    names: tuple[Any, Any],
    ax: Any = None,
) -> Any:
    """Draw the sensitivities of a design, which have their largest values where it has weight.

    Parameters
    ----------
    sensitivity, weights : array of shape (m,)
    level : float
        The bound of the equivalence theorem.
    X : array of shape (m, n) or None
        The candidates if they are rows. The one or two columns that vary are the places of the drawing.
    places : array_like of shape (m,) or (m, 2), optional
        Other places. Without any the candidates are drawn in the order of their sensitivity.
    names : tuple
        The labels of the candidates and of their columns, None without labels.
    ax : matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    matplotlib axes
    """
    m, (candidates, columns) = len(weights), names
    varying = np.zeros(0, dtype=np.intp) if X is None else np.flatnonzero(np.ptp(X, axis=0))
    if places is not None:
        at = finite_array(places, "places", ndim=(1, 2))
        at = at[:, None] if at.ndim == 1 else at
        if len(at) != m or at.shape[1] not in (1, 2):
            raise ValueError(f"places has shape {at.shape}; expected {(m,)} or {(m, 2)}")
        given = getattr(places, "columns", [f"factor {k}" for k in range(at.shape[1])])
        return _draw_places(at, sensitivity, weights, level, list(given), ax)
    if X is not None and len(varying) in (1, 2):
        own = [f"column {k}" if columns is None else columns[k] for k in varying]
        return _draw_places(X[:, varying], sensitivity, weights, level, own, ax)
    if candidates is None and X is not None:
        candidates = ["(" + ", ".join(f"{x:.3g}" for x in row[varying]) + ")" for row in X]
    return _draw_ranking(sensitivity, weights, level, range(m) if candidates is None else candidates, ax)


def _draw_places(
    places: Array, sensitivity: Array, weights: Array, level: float, names: Sequence[Any], ax: Any
) -> Any:
    """Draw sensitivities at places of the candidates, shape (m, 1) or (m, 2), with names of the axes."""
    ax = one_axes(ax, _SIZE)
    ax.set_xlabel(str(names[0]))
    size = np.maximum(_MARKER * weights / weights.max(), _SMALLEST)
    used = weights > 0
    if places.shape[1] == 1:
        order = np.argsort(places[:, 0])
        ax.plot(places[order, 0], sensitivity[order], color=_OUTLINE, lw=1.2, label="sensitivity")
        ax.axhline(level, color=_LEVEL, lw=1, ls="--", label="bound of the theorem")
        ax.scatter(places[used, 0], sensitivity[used], size[used], color=_CONTACT, zorder=3, label="weights")
        ax.set_ylabel("sensitivity")
        ax.legend(frameon=False, fontsize=8)
        return ax
    shown = ax.scatter(*places.T, c=sensitivity, s=14, cmap="viridis")
    ax.scatter(*places[used].T, s=size[used] + 30, facecolor="none", edgecolor=_CONTACT, lw=1.8)
    ax.set_ylabel(str(names[1]))
    ax.figure.colorbar(shown, ax=ax, label="sensitivity")
    return ax


def _draw_ranking(sensitivity: Array, weights: Array, level: float, names: Sequence[Any], ax: Any) -> Any:
    """Draw candidates in the order of their sensitivity, with the names of those of the largest weights."""
    order = np.lexsort((-weights, -sensitivity))
    sensitivity, weights = sensitivity[order], weights[order]
    ax = _draw_places(
        np.arange(float(len(order)))[:, None], sensitivity, weights, level, ["candidates by sensitivity"], ax
    )
    shown = np.sort(np.argsort(-weights, kind="stable")[: min(_NAMED, int((weights > 0).sum()))])
    lines = ["weight  candidate", *(f"{weights[k]:.3f}   {names[order[k]]}" for k in shown)]
    more = int((weights > 0).sum()) - len(shown)
    text = "\n".join([*lines, *([f"and {more} more"] if more > 0 else [])])
    ax.text(1.02, 1.0, text, transform=ax.transAxes, va="top", fontsize=7, family="monospace")
    ax.set_ylim(min(0.0, float(sensitivity.min())), 1.1 * float(sensitivity.max()))
    return ax
