"""The texts of expressions in messages: sums, multiples and factors."""

from __future__ import annotations

from bregopt.arrays import Array

__all__ = ["as_factor", "scaled_label", "sum_label"]

_LONGEST = 80  # characters; of a longer sum the last terms are left out
_MORE = " + ..."


def sum_label(first: str, second: str) -> str:
    """Return the label of a sum of two labels."""
    whole = f"{first} - {second[1:]}" if second.startswith("-") else f"{first} + {second}"
    if len(whole) <= _LONGEST:
        return whole
    return first if first.endswith(_MORE) else f"{first}{_MORE}"


def scaled_label(label: str, factor: Array) -> str:
    """Return the label of a multiple; an array of factors is called ``A``."""
    first = factor.flat[0]
    if (factor != first).any():
        return _short(f"A * {as_factor(label)}")
    if first == 1:
        return label
    if first == -1 and label.startswith("-") and as_factor(label[1:]) == label[1:]:
        return label[1:]
    label = as_factor(label)
    return _short(f"-{label}" if first == -1 else f"{float(first):g} {label}")


def as_factor(label: str) -> str:
    """Return a label that can be a factor, in parentheses where it is a sum or product."""
    compound = any(sign in label for sign in (" + ", " - ", " * ")) or label.startswith("-")
    return f"({label})" if compound else label


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST + len(_MORE) else "affine expression"
