"""Numbers of reports as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bregopt.arrays import Array

if TYPE_CHECKING:
    from bregopt.problems.correlation.answer import Asked

__all__ = ["caption", "condition", "number", "requested", "spectrum_text"]


def caption(noun: str, shown: int, count: int) -> str:
    """Return the caption of a table that shows some of its rows."""
    some = f"all {count} {noun}" if shown == count else f"{shown} of {count} {noun}"
    return f"{some}, by the size of their change"


def number(value: float) -> str:
    """Return an entry as text; NaN is unknown."""
    return "unknown" if np.isnan(value) else f"{value:.4f}"


def requested(asked: Asked, change: Array) -> dict[str, str]:
    """Return what was asked of the answer besides nearness, as text by name; `change` is of each entry."""
    facts, i, j = {}, asked.fixed.i, asked.fixed.j
    if asked.min_eigenvalue > 0:
        facts["floor"] = f"{asked.min_eigenvalue:g}"
    if len(i):
        largest = np.abs(change[i, j]).max()
        facts["kept"] = f"{_counted(len(i), 'entry', 'entries')}, largest change {largest:.1e}"
    if asked.unknown is not None:
        facts["unknown"] = _counted(int(asked.unknown.sum()) // 2, "pair", "pairs")
    return facts


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def spectrum_text(eigenvalues: Array) -> str:
    """Return the range of a spectrum, ascending, its negative part and condition, as text."""
    if np.isnan(eigenvalues).any():
        return "not defined, as entries are unknown"
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    negative = int((eigenvalues < -_round_off(eigenvalues)).sum())
    kappa = condition(eigenvalues)
    shown = f"condition number {kappa:.3g}" if np.isfinite(kappa) else "singular"
    some = f"{negative} of {len(eigenvalues)} negative" if negative else "none negative"
    return f"{low:.4g} to {high:.4g}, {some}, {shown if not negative else 'indefinite'}"


def condition(eigenvalues: Array) -> float:
    """Return the condition number; infinite if the smallest eigenvalue is zero up to round-off."""
    low, high = float(np.abs(eigenvalues).min()), float(np.abs(eigenvalues).max())
    return high / low if low > _round_off(eigenvalues) else float("inf")


def _round_off(eigenvalues: Array) -> float:
    return len(eigenvalues) * float(np.finfo(float).eps) * float(np.abs(eigenvalues).max())
