"""Plots of answers; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bregopt.arrays import Array
from bregopt.errors import require

if TYPE_CHECKING:
    import matplotlib.axes

__all__ = ["Axes", "plot_convergence", "plot_correlation"]

Axes: TypeAlias = "matplotlib.axes.Axes"

_NAMED = 30  # order up to which the rows of a drawn matrix have their labels
_BEFORE, _AFTER = "#c44e52", "#4c72b0"


def plot_convergence(history: dict[str, Array], title: str = "", ax: Axes | None = None) -> Axes:
    """Draw gap and primal residual against iterations on a logarithmic axis.

    Parameters
    ----------
    history : dict from str to array
        Of a :class:`bregopt.Solution`.
    title : str
    ax : matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    """
    pyplot = require("matplotlib.pyplot", "plot")
    if ax is None:
        _, ax = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for key, label in (("gap", "certified gap"), ("primal_residual", "primal residual")):
        if key in history:
            at = history["iteration"]
            shown = np.where(history[key] > 0, history[key], np.nan)
            ax.semilogy(at, shown, marker="." if len(at) < 60 else None, label=label)
    ax.set_xlabel("iteration")
    ax.set_title(title)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def plot_correlation(
    before: Array, after: Array, labels: Sequence[Any] | None = None, ax: Sequence[Axes] | None = None
) -> NDArray[np.object_]:
    """Draw a matrix before and after its repair, the change, and both spectra.

    Parameters
    ----------
    before, after : array of shape (n, n)
        An unknown entry of `before` is NaN, and left white.
    labels : sequence of length n, optional
    ax : sequence of four matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    array of four matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    """
    pyplot = require("matplotlib.pyplot", "plot")
    if ax is None:
        _, ax = pyplot.subplots(2, 2, figsize=(9.2, 8), layout="constrained")
    axes = np.asarray(ax).ravel()
    if len(axes) != 4:
        raise ValueError(f"ax holds {len(axes)} axes; expected 4")
    change = after - before
    largest = max(float(np.nanmax(np.abs(before))), float(np.abs(after).max()))
    size = 9 if len(after) <= 15 else 7
    own = max(float(np.nanmax(np.abs(change), initial=0.0)), 1e-12)
    for each, matrix, limit, title in zip(
        axes,
        (before, after, change),
        (largest, largest, own),
        ("before", "after", "change"),
        strict=False,
    ):
        image = each.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        each.figure.colorbar(image, ax=each, shrink=0.85)
        each.set_title(title)
        if labels is not None and len(labels) <= _NAMED:
            each.set_xticks(range(len(labels)), labels, rotation=90, fontsize=size)
            each.set_yticks(range(len(labels)), labels, fontsize=size)
    _draw_spectra(axes[3], before, after)
    return axes


def _draw_spectra(ax: Any, before: Array, after: Array) -> None:
    """Draw eigenvalues by rank; the axis is linear around zero, such that small negative ones are seen."""
    rank = np.arange(1, len(after) + 1)
    own, given = np.linalg.eigvalsh(after)[::-1], np.full(len(after), np.nan)
    if np.isfinite(before).all():
        given = np.linalg.eigvalsh(before)[::-1]
        ax.plot(rank, given, "o", ms=4.5, mfc="none", color=_BEFORE, label="before")
    ax.plot(rank, own, ".", ms=5, color=_AFTER, label="after")
    ax.axhline(0.0, lw=0.8, color="0.4")
    low, high = float(np.fmin(own, given).min()), float(np.fmax(own, given).max())
    linear = min(max(-2 * low, 1e-4 * high), high)
    ax.set_yscale("symlog", linthresh=linear)
    ax.set_ylim(min(1.5 * low, -0.25 * linear), 1.5 * high)
    ax.set_title("eigenvalues")
    ax.set_xlabel("number")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
