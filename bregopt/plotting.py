"""Plots of answers; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bregopt.arrays import Array
from bregopt.errors import require

if TYPE_CHECKING:
    import matplotlib.axes

__all__ = [
    "Axes",
    "plot_convergence",
    "plot_correlation",
    "plot_intervals",
    "plot_path",
    "plot_points",
    "plot_scores",
]

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
    ax = _one_axes(ax)
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
    axes = _several_axes(ax, 2, 2, figsize=(9.2, 8))
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


def plot_intervals(
    names: Sequence[str], values: Array, errors: Array, seconds: Array, ax: Sequence[Axes] | None = None
) -> NDArray[np.object_]:
    """Draw the intervals that hold the optimum, as several routes prove them, and the routes' times.

    Parameters
    ----------
    names : sequence of length k
        Of the routes.
    values, errors, seconds : array of shape (k,)
        An error is the largest distance of the optimum from the value.
    ax : sequence of two matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    array of two matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    """
    axes = _several_axes(ax, 1, 2, figsize=(8, 0.9 + 0.4 * len(names)), sharey=True)
    place = np.arange(len(names))
    shown = np.flatnonzero(np.isfinite(values) & np.isfinite(errors))
    first = float(values[shown[0]]) if len(shown) else 0.0
    apart = values[shown] - first
    axes[0].errorbar(apart, place[shown], xerr=errors[shown], fmt="o", capsize=4, color=_AFTER)
    axes[0].set_yticks(place, names)
    axes[0].invert_yaxis()
    axes[0].set_xlabel(f"value less {first:.8g}, and its error")
    bars = axes[1].barh(place, seconds, height=0.5, color=_AFTER)
    axes[1].bar_label(bars, fmt=" %.2g")
    axes[1].set_xlim(0, 1.2 * float(np.max(seconds, initial=1e-3)))
    axes[1].set_xlabel("seconds")
    return axes


def plot_points(
    before: Array, after: Array, label: ArrayLike | None = None, ax: Sequence[Axes] | None = None
) -> NDArray[np.object_]:
    """Draw points before and after a map, each in the two directions in which they differ most.

    Parameters
    ----------
    before, after : array of shape (n, d), (n, k)
    label : array_like of shape (n,), optional
        Classes, which are drawn in colors of their own.
    ax : sequence of two matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    array of two matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    """
    axes = _several_axes(ax, 1, 2, figsize=(8, 3.8))
    label = np.zeros(len(before)) if label is None else np.asarray(label)
    if label.shape != (len(before),):
        raise ValueError(f"y has shape {label.shape}; expected ({len(before)},), a class for each point")
    for each, points, title in zip(axes, (before, after), ("before", "after"), strict=True):
        place = _principal(points)
        for name in np.unique(label):
            each.scatter(*place[label == name].T, s=14, label=str(name))
        each.set_title(title)
        each.set_xticks([])
        each.set_yticks([])
    if len(np.unique(label)) > 1:
        axes[1].legend(frameon=False)
    return axes


def _one_axes(ax: Axes | None) -> Axes:
    """Return the axes that are given, or those of a new figure."""
    pyplot = require("matplotlib.pyplot", "plot")
    return pyplot.subplots(figsize=(5, 3.2), layout="constrained")[1] if ax is None else ax


def _several_axes(ax: Sequence[Axes] | None, rows: int, columns: int, **options: Any) -> NDArray[np.object_]:
    """Return the axes that are given, which must be as many, or those of a new figure with `options`."""
    pyplot = require("matplotlib.pyplot", "plot")
    if ax is None:
        _, ax = pyplot.subplots(rows, columns, layout="constrained", **options)
    axes = np.asarray(ax).ravel()
    if len(axes) != rows * columns:
        raise ValueError(f"ax holds {len(axes)} axes; expected {rows * columns}")
    return axes


def _principal(points: Array) -> Array:
    """Return the coordinates of points in the two directions in which they differ most, shape (n, 2)."""
    centered = points - points.mean(axis=0)
    _, _, V = np.linalg.svd(centered, full_matrices=False)
    place = np.zeros((len(points), 2))
    place[:, : len(V[:2])] = centered @ V[:2].T
    return place


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


def plot_path(alphas: Array, curves: Array, label: str, ax: Axes | None = None) -> Axes:
    """Draw curves against the weight of a penalty on a logarithmic axis, the largest weight first.

    Parameters
    ----------
    alphas : array of shape (k,)
    curves : array of shape (k, m)
        Curves that are zero throughout are left out.
    label : str
        Of the vertical axis.
    ax : matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    matplotlib axes
    """
    ax = _one_axes(ax)
    order = np.argsort(-alphas)
    shown = curves[order][:, np.any(curves != 0, axis=0)]
    ax.semilogx(alphas[order], shown, linewidth=1)
    ax.invert_xaxis()
    ax.set_xlabel("alpha")
    ax.set_ylabel(label)
    ax.grid(alpha=0.3)
    return ax


def plot_scores(
    alphas: Array, mean: Array, deviation: Array | None, chosen: float, label: str, ax: Axes | None = None
) -> Axes:
    """Draw scores against the weight of a penalty on a logarithmic axis, with the chosen weight.

    Parameters
    ----------
    alphas, mean : array of shape (k,)
    deviation : array of shape (k,), optional
        Drawn as a band.
    chosen : float
    label : str
        Of the vertical axis.
    ax : matplotlib axes, optional
        The default is a new figure.

    Returns
    -------
    matplotlib axes
    """
    ax = plot_path(alphas, mean[:, None], label, ax)
    if deviation is not None:
        ax.fill_between(alphas, mean - deviation, mean + deviation, alpha=0.2)
    ax.axvline(chosen, color=_BEFORE, linestyle="--", linewidth=1)
    return ax
