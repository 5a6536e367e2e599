"""Plots of answers, and tables as text, HTML and LaTeX.

Each function that draws returns the axes, those that are given or of a new figure. Matplotlib is imported
when one is called; without it that raises an ImportError that names the extra.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bregopt.arrays import Array
from bregopt.errors import require

if TYPE_CHECKING:
    import matplotlib.axes

Axes: TypeAlias = "matplotlib.axes.Axes"

_NAMED = 25  # labels along an axis; of more rows every k-th has one
_UNKNOWN = "0.8"  # gray, as white is a change of zero
_NOTHING = 1e-9  # changes below it, relative to the largest entry, are round-off and drawn as none
_MOST_LINES = 500  # edges of a graph, and curves of a path; of more the largest are drawn
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
    """
    ax = one_axes(ax)
    for key, label in (("gap", "certified gap"), ("primal_residual", "primal residual")):
        if key in history:
            at = history["iteration"]
            shown = np.where(history[key] > 0, history[key], np.nan)
            named = label if np.isfinite(shown).any() else f"{label}: zero"
            ax.semilogy(at, shown, marker="." if len(at) < 60 else None, label=named)
    ax.set_xlabel("iteration")
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    if len(history["iteration"]) == 1:  # an integer is then within the axis
        ax.set_xlim(float(history["iteration"][0]) - 0.6, float(history["iteration"][0]) + 0.6)
    ax.set_title(title)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax


def plot_correlation(
    before: Array,
    after: Array,
    labels: Sequence[Any] | None = None,
    ax: Sequence[Axes] | None = None,
    what: str = "",
) -> NDArray[np.object_]:
    """Draw a matrix before and after its repair, the change, and both spectra.

    Parameters
    ----------
    before, after : array of shape (n, n)
        An unknown entry of `before` is NaN, and gray.
    labels : sequence of length n, optional
    ax : sequence of four matplotlib axes, optional
        The default is a new figure.
    what : str
        What is drawn, for the titles.
    """
    axes = _several_axes(ax, 2, 2, figsize=(9.2, 8))
    change = after - before
    largest = max(float(np.nanmax(np.abs(before))), float(np.abs(after).max()))
    own = float(np.nanmax(np.abs(change), initial=0.0))
    titles = ("before", "after", "change" if own > _NOTHING * largest else "change: none")
    limits = (largest, largest, own if own > _NOTHING * largest else largest)
    for each, matrix, limit, title in zip(axes, (before, after, change), limits, titles, strict=False):
        _draw_matrix(each, matrix, limit, title + what, labels)
    _draw_spectra(axes[3], before, after)
    axes[3].set_title(f"eigenvalues{what}")
    return axes


def plot_panel(
    keys: Sequence[Any],
    distance: Array,
    before: Array,
    after: Array,
    mean: Array,
    labels: Sequence[Any],
    ax: Sequence[Axes] | None = None,
) -> NDArray[np.object_]:
    """Draw how a panel of matrices changed: along its dates, and by pairs.

    Parameters
    ----------
    keys : sequence of length B
        The dates.
    distance, before, after : array of shape (B,)
        The norm of the change, and the smallest eigenvalues before and after; NaN is not drawn.
    mean : array of shape (n, n)
        The mean change of each pair in magnitude.
    labels : sequence of length n
    ax : sequence of three matplotlib axes, optional
        The default is a new figure.
    """
    axes = _several_axes(ax, 1, 3, figsize=(13, 4))
    on_axis = all(isinstance(key, Real | date) for key in keys)  # other keys are names
    place: Any = np.asarray(keys) if on_axis else np.arange(len(keys))
    mark = "." if len(keys) < 60 else None
    shown = mean.copy()
    np.fill_diagonal(shown, 0.0)
    largest = float(np.nanmax(shown, initial=0.0))
    some = largest > _NOTHING
    axes[0].plot(place, distance, marker=mark, color=_AFTER, lw=1)
    axes[0].set_ylim(0, None if some else 1)
    axes[0].set_title("change, Frobenius norm" if some else "change: none")
    axes[1].plot(place, before, marker=mark, color=_BEFORE, lw=1, label="before")
    axes[1].plot(place, after, marker=mark, color=_AFTER, lw=1, label="after")
    axes[1].axhline(0.0, lw=0.8, color="0.4")
    axes[1].set_title("smallest eigenvalue", loc="left")
    axes[1].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.98), borderpad=0)
    for each in axes[:2]:
        if not on_axis:
            _name_ticks(each.set_xticks, keys, 12)
        each.tick_params(axis="x", labelrotation=45)
        each.grid(alpha=0.3)
    _draw_matrix(axes[2], shown, largest if some else 1.0, "mean |change| of a pair", labels, "Blues", 0.0)
    return axes


def plot_loadings(
    loadings: Array, specific: Array, labels: Sequence[Any] | None = None, ax: Sequence[Axes] | None = None
) -> NDArray[np.object_]:
    """Draw the loadings of a factor model, and how the variance of each row divides.

    Parameters
    ----------
    loadings : array of shape (n, k)
    specific : array of shape (n,)
        Specific variances.
    labels : sequence of length n, optional
    ax : sequence of two matplotlib axes, optional
        The default is a new figure.
    """
    n, k = loadings.shape
    axes = _several_axes(ax, 1, 2, figsize=(9, min(2.2 + 0.2 * n, 8)), sharey=True)
    limit = max(float(np.abs(loadings).max()), 1e-12)
    image = axes[0].imshow(
        loadings, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    axes[0].figure.colorbar(image, ax=axes[0])
    axes[0].set_xticks(range(k), [f"factor {j + 1}" for j in range(k)], rotation=45 if k > 4 else 0)
    axes[0].set_title("loadings")
    left = np.zeros(n)
    for j in range(k):
        axes[1].barh(np.arange(n), loadings[:, j] ** 2, left=left, height=0.8, label=f"factor {j + 1}")
        left = left + loadings[:, j] ** 2
    axes[1].barh(np.arange(n), specific, left=left, height=0.8, color="0.85", label="specific")
    axes[1].set_title("shares of the variance")
    axes[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    _name_ticks(axes[0].set_yticks, range(n) if labels is None else labels)
    axes[0].set_ylim(n - 0.5, -0.5)
    return axes


def plot_graph(partial: Array, labels: Sequence[Any] | None = None, ax: Axes | None = None) -> Axes:
    """Draw a graph of partial correlations on a circle, in an order that keeps neighbors together.

    Parameters
    ----------
    partial : array of shape (n, n)
        Zero where there is no edge. Positive edges are blue and negative ones red, as wide as they are large;
        of many only the largest are drawn, and the title says so.
    labels : sequence of length n, optional
    ax : matplotlib axes, optional
        The default is a new figure.
    """
    ax = one_axes(ax, (5.5, 5.5))
    n, names = len(partial), range(len(partial)) if labels is None else labels
    order = _circular_order(np.abs(partial))
    angle = np.empty(n)
    angle[order] = 2 * np.pi * np.arange(n) / n
    at = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    i, j = np.nonzero(np.triu(partial, 1))
    size = np.abs(partial[i, j])
    largest = max(float(size.max(initial=0.0)), 1e-12)
    drawn = np.argsort(size, kind="stable")[-_MOST_LINES:]
    ax.add_collection(
        require("matplotlib.collections", "plot").LineCollection(
            np.stack([at[i[drawn]], at[j[drawn]]], axis=1),
            colors=np.where(partial[i, j][drawn] > 0, _AFTER, _BEFORE),
            linewidths=0.3 + 3 * size[drawn] / largest,
            alpha=0.3 + 0.6 * size[drawn] / largest,
            zorder=1,
        )
    )
    degree = np.bincount(np.concatenate([i, j]), minlength=n)
    ax.scatter(at[:, 0], at[:, 1], s=12 + 300 / n, c=np.where(degree > 0, "0.2", "0.75"), zorder=2)
    every = -(-n // 60)
    for rank, k in enumerate(order):
        if rank % every == 0:
            turn = np.degrees(angle[k])
            flip = 90 < turn < 270
            ax.text(
                1.05 * at[k, 0],
                1.05 * at[k, 1],
                _plain(names[k]),
                rotation=turn + 180 if flip else turn,
                rotation_mode="anchor",
                ha="right" if flip else "left",
                va="center",
                fontsize=9 if n <= 30 else 6,
            )
    reach = 1.15 + (0.045 if n <= 30 else 0.03) * max(len(str(name)) for name in names)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    ax.axis("off")
    most = "" if len(drawn) == len(i) else f", the {len(drawn)} largest drawn"
    ax.set_title(f"{len(i)} edges{most}; positive blue, negative red; largest {largest:.2g}", fontsize=10)
    return ax


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


def plot_trace_profile(traces: Array, lower: Array, upper: Array, ax: Axes | None = None) -> Axes:
    """Draw the proven interval of the optimum for each bound on the trace of slacks.

    Parameters
    ----------
    traces, lower, upper : array of shape (k,)
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
    ax = one_axes(ax)
    shown = np.isfinite(lower) & np.isfinite(upper)
    traces, lower, upper = traces[shown], lower[shown], upper[shown]
    middle = (lower + upper) / 2
    ax.errorbar(traces, middle, yerr=[middle - lower, upper - middle], fmt="o-", capsize=4, color=_AFTER)
    ax.set(xscale="log", xlabel="largest trace of the slack matrices", ylabel="proven optimum")
    ax.ticklabel_format(axis="y", useOffset=False)
    return ax


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


def one_axes(ax: Axes | None, size: tuple[float, float] = (5, 3.2)) -> Axes:
    """Return the axes that are given, or those of a new figure of a size in inches."""
    pyplot = require("matplotlib.pyplot", "plot")
    return pyplot.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


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


def _draw_matrix(
    ax: Any,
    matrix: Array,
    limit: float,
    title: str,
    labels: Sequence[Any] | None,
    cmap: str = "RdBu_r",
    least: float | None = None,
) -> None:
    """Draw a matrix; an unknown entry is gray, as white is zero."""
    ax.set_facecolor(_UNKNOWN)
    low = -limit if least is None else least
    image = ax.imshow(matrix, cmap=cmap, vmin=low, vmax=limit, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.85)
    ax.set_title(f"{title} (gray: unknown)" if np.isnan(matrix).any() else title)
    if labels is not None:
        _name_ticks(ax.set_xticks, labels, rotation=90)
        _name_ticks(ax.set_yticks, labels)


def _name_ticks(set_ticks: Any, labels: Sequence[Any], most: int = _NAMED, **options: Any) -> None:
    """Label an axis: each of a few rows, every k-th of more."""
    every = -(-len(labels) // most)
    places = range(0, len(labels), every)
    set_ticks(places, [_plain(labels[k]) for k in places], fontsize=9 if len(labels) <= 15 else 7, **options)


def _plain(label: Any) -> str:
    """Return a label that matplotlib does not read as mathematics."""
    return str(label).replace("$", r"\$")


def _circular_order(size: Array) -> list[int]:
    """Return an order of vertices in which each is the one most tied to those just before it."""
    left, order = set(range(len(size))), [int(size.sum(axis=0).argmax())]
    left.remove(order[0])
    pull = size[order[0]].copy()
    while left:
        k = max(left, key=lambda vertex: (pull[vertex], -vertex))
        order.append(k)
        left.remove(k)
        pull = 0.5 * pull + size[k]
    return order


def _draw_spectra(ax: Any, before: Array, after: Array) -> None:
    """Draw eigenvalues by rank; the axis is linear around zero, such that small negative ones are seen.

    Unknown entries of the given matrix are those of the answer.
    """
    rank = np.arange(1, len(after) + 1)
    unknown = np.isnan(before)
    own = np.linalg.eigvalsh(after)[::-1]
    given = np.linalg.eigvalsh(np.where(unknown, after, before))[::-1]
    named = "before, unknown as after" if unknown.any() else "before"
    ax.plot(rank, given, "o", ms=4.5, mfc="none", color=_BEFORE, label=named)
    ax.plot(rank, own, ".", ms=5, color=_AFTER, label="after")
    ax.axhline(0.0, lw=0.8, color="0.4")
    low, high = float(np.fmin(own, given).min()), float(np.fmax(own, given).max())
    linear = min(max(-2 * low, 1e-4 * high), high)
    ax.set_yscale("symlog", linthresh=linear)
    ax.set_ylim(min(1.5 * low, -0.25 * linear), 1.5 * high)
    ax.set_xlabel("number")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)


def plot_path(
    alphas: Array,
    curves: Array,
    label: str,
    ax: Axes | None = None,
    criterion: Array | None = None,
    name: str = "",
) -> Axes:
    """Draw curves against the weight of a penalty on a logarithmic axis, the largest weight first.

    Parameters
    ----------
    alphas : array of shape (k,)
    curves : array of shape (k, m)
        Curves that are zero throughout are left out, and of many all but the largest.
    label : str
        Of the vertical axis.
    ax : matplotlib axes, optional
        The default is a new figure.
    criterion : array of shape (k,), optional
        Drawn with an axis of its own, at the right; its least value is marked.
    name : str
        Of the criterion.
    """
    ax = one_axes(ax)
    order = np.argsort(-alphas)
    size = np.nan_to_num(np.abs(curves)).max(axis=0)
    largest, some = np.sort(np.argsort(-size, kind="stable")[:_MOST_LINES]), int((size > 0).sum())
    shown = curves[np.ix_(order, largest[size[largest] > 0])]
    ax.semilogx(alphas[order], shown, linewidth=1 if shown.shape[1] < 200 else 0.5)
    title = "" if shown.shape[1] == some else f"the {shown.shape[1]} largest of {some} curves"
    if alphas.max() < 10 * alphas.min():  # the labels within a decade would overlap
        named = alphas[order][:: -(-len(alphas) // 5)]
        ax.set_xticks(named, [f"{alpha:.2g}" for alpha in named])
        ax.minorticks_off()
    ax.invert_xaxis()
    ax.set_xlabel("alpha")
    ax.set_ylabel(label)
    ax.grid(alpha=0.3)
    if criterion is not None:
        right = ax.twinx()
        right.plot(alphas[order], criterion[order], "k.-", lw=1.5)
        right.set_ylabel(name)
        best = float(alphas[int(np.nanargmin(criterion))])
        ax.axvline(best, color=_BEFORE, linestyle="--", linewidth=1)
        title = "\n".join(filter(None, [f"least {name} at alpha {best:.3g}", title]))
    ax.set_title(title, fontsize=10)
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
    """
    ax = plot_path(alphas, mean[:, None], label, ax)
    if deviation is not None:
        ax.fill_between(alphas, mean - deviation, mean + deviation, alpha=0.2)
    ax.axvline(chosen, color=_BEFORE, linestyle="--", linewidth=1)
    ax.set_title(f"chosen alpha {chosen:.3g}", fontsize=10)
    return ax


# --- Tables ---------------------------------------------------------------------------------------------


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return the lines of a table; the first `left` columns are aligned on the left, others on the right."""
    table = [titles, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    align = [str.ljust if k < left else str.rjust for k in range(len(titles))]
    lines = [
        "  ".join(put(cell, width) for put, cell, width in zip(align, cells, widths, strict=True))
        for cells in table
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def html_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: int, caption: str = "", math: bool = False
) -> str:
    """Return the table as HTML; with `math` the cells are HTML already."""
    shown = (lambda cell: cell) if math else escaped
    sides = ["left" if k < left else "right" for k in range(max(map(len, [titles, *rows])))]

    def line(cells: Sequence[str], tag: str) -> str:
        inside = (
            f'<{tag} style="text-align: {side}">{shown(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(inside)}</tr>"

    above = f'<caption style="text-align: left">{escaped(caption)}</caption>' if caption else ""
    head = f"<thead>{line(titles, 'th')}</thead>" if titles else ""
    body = "\n".join(line(cells, "td") for cells in rows)
    return f"<table>{above}{head}<tbody>\n{body}\n</tbody></table>"


def latex_table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int, math: bool = False) -> str:
    """Return the table as a LaTeX array; with `math` the cells are LaTeX already."""
    shown = (lambda cell: cell) if math else latex_text
    columns = max(map(len, [titles, *rows]))
    lines = [" & ".join(map(shown, cells)) + r" \\" for cells in rows]
    if titles:
        lines = [" & ".join(map(latex_text, titles)) + r" \\ \hline", *lines]
    inside = "\n".join(lines)
    return f"\\begin{{array}}{{{'l' * min(left, columns)}{'r' * (columns - left)}}}\n{inside}\n\\end{{array}}"


def escaped(text: str) -> str:
    """Return text for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def latex_text(text: str) -> str:
    """Return text for LaTeX in mathematical mode."""
    plain = re.sub(r"([#$%&_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    return f"\\text{{{plain}}}" if text else ""
