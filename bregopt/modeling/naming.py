"""Formulas and texts of expressions, names of constraints, and the labels of their rows."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from bregopt.arrays import Array

__all__ = ["Formula", "Named", "as_factor", "axes_of", "scaled_label", "sum_label"]

_LONGEST = 80  # characters; of a longer sum the last terms are left out
_MORE = " + ..."


class Formula:
    """An object with a formula as text, from which other notations follow.

    Attributes
    ----------
    label : str
        The formula as text in the language.
    """

    label: str
    source_text: str | None = None  # in the language from which it was translated, CVXPY's

    @property
    def full_label(self) -> str:
        """The whole formula as text, where `label` leaves a part of it out."""
        return self.label

    def _repr_latex_(self) -> str:
        from bregopt.modeling.notation import LATEX, written  # only those who read formulas wait for it

        return f"${written(self.full_label, LATEX)}$"


class Named(Formula):
    """A constraint that may have a name; messages and reports show it.

    Attributes
    ----------
    name : str or None
    source : Named or None
        The constraint that needs this one; None for those that users declare.
    """

    name: str | None = None
    source: Named | None = None

    @property
    def declared(self) -> Named:
        """The declared constraint that this one belongs to."""
        return self if self.source is None else self.source.declared

    def named(self, name: str) -> Self:
        """Give the constraint a name, and return it.

        The name is unique in a problem. Messages show it, and ``sol.duals_by_name`` holds the dual under it.

        Raises
        ------
        TypeError, ValueError
            If the name is not a string, or empty.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of {self.label} is {name!r}; expected a string")
        if not name:
            raise ValueError(f"the name of {self.label} is empty; expected at least one character")
        self.name = name
        return self

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self.label} is a constraint and has no truth value; put it into the constraints of a "
            "bo.Problem. For two bounds write bo.between(expr, lower, upper), not lower <= expr <= upper"
        )

    @property
    def title(self) -> str:
        """The name and the constraint as text."""
        return self.label if self.name is None else f"{self.name}: {self.label}"


def axes_of(value: Any, shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """Return the labels of a pandas Series or DataFrame of this shape, one index for each axis.

    Other values have none. pandas is not imported.
    """
    if type(value).__module__.split(".")[0] != "pandas" or getattr(value, "shape", None) != shape:
        return None
    return tuple(value.axes)


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
