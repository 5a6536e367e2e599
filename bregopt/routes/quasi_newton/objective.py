"""What the method needs of an objective over positive definite matrices, and of its points."""

from __future__ import annotations

from typing import Protocol, TypeVar

from bregopt.arrays import Array

__all__ = ["Objective", "P", "Point"]


class Point(Protocol):
    """A positive definite matrix and the results of a pass over the rows there.

    Attributes
    ----------
    M, root : array of shape (r, r)
        ``M = root root'``.
    value : float
        The objective.
    gradient : array of shape (r, r)
    curvature : array of shape (r, r)
        The sum of ``w_k z_k z_k'`` over rows ``z_k'M z_k``, with the second derivatives ``w_k`` of their
        penalties. It is used where the pass was asked for it.
    weight : float
        The sum of ``w_k``.
    """

    @property
    def M(self) -> Array: ...

    @property
    def root(self) -> Array: ...

    @property
    def value(self) -> float: ...

    @property
    def gradient(self) -> Array: ...

    @property
    def curvature(self) -> Array: ...

    @property
    def weight(self) -> float: ...


P = TypeVar("P", bound=Point)
P_co = TypeVar("P_co", bound=Point, covariant=True)


class Objective(Protocol[P_co]):
    """A divergence, plus a linear cost and the penalties of rows.

    Attributes
    ----------
    exponential : bool
        Whether the divergence is von Neumann's, and otherwise LogDet.
    """

    @property
    def exponential(self) -> bool: ...

    def at(self, root: Array, curvature: bool) -> P_co | None:
        """Return the point at ``M = root root'``, None where `M` is singular in floating point.

        `curvature` tells whether it has the sums of second derivatives.
        """
        ...
