"""Plots of answers; matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import require

__all__ = ["plot_convergence"]


def plot_convergence(history: dict[str, Array], title: str = "", ax: Any = None) -> Any:
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
