"""A LogDet nearness problem in one matrix or several, and the certificate of an iterate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol, Unpack

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.divergences import LogDet
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.presolve.coordinates import Whitened
from bregopt.program import Block, Program
from bregopt.program.program import divergence_of
from bregopt.records import cached_property, replace
from bregopt.routes.progress import Progress

__all__ = ["LogDetIterate", "LogDetProblem", "LogDeterminants", "Matrices"]

Matrices = tuple[Array, ...]  # one for each block


class LogDetIterate(Protocol):
    """An iterate: matrices, multipliers, their factors; no ``Z_root`` if the multipliers prove nothing."""

    @property
    def X(self) -> Matrices: ...

    @property
    def X_root(self) -> Matrices: ...

    @property
    def Z_root(self) -> Matrices | None: ...

    @property
    def y(self) -> Array: ...

    @property
    def activity(self) -> Array: ...


class LogDeterminants(NamedTuple):
    """The logarithms of the determinants of ``X`` and ``Z``, for each block."""

    X: tuple[float, ...]
    Z: tuple[float, ...]


class LogDetProblem:
    """A program with a LogDet term for each matrix.

    Parameters
    ----------
    program : Program
    progress : Progress
        Gives the residual in the original program if this one is reduced.

    Attributes
    ----------
    mu : tuple of float
        The weights of the terms.
    X0 : tuple of arrays of shape (n_b, n_b)
    C : tuple of arrays of shape (n_b, n_b)
        The linear terms, ``C + mu inv(X0)``.
    """

    def __init__(self, program: Program, progress: Progress) -> None:
        self._terms = [_LogDetTerm(block) for block in program.blocks]
        self.program, self.mu = program, tuple(term.mu for term in self._terms)
        self.X0 = tuple(term.X0 for term in self._terms)
        self.C: Matrices = tuple(term.C for term in self._terms)
        self.whitened = progress.behind(Whitened)
        self._progress = progress

    @cached_property
    def unconstrained(self) -> Matrices | None:
        """The unconstrained minimizer, None if there is none."""
        found: list[Array] = []
        for term in self._terms:
            X = term.minimizer()
            if X is None:
                return None
            found.append(X)
        return tuple(found)

    def steepest(self) -> Iterator[Matrices]:
        """Yield matrices along which the linear terms grow least: in one block, and in all together.

        Each has trace one, or is zero.
        """
        directions = []
        for C in self.C:
            v = np.linalg.eigh(C)[1][:, :1]
            directions.append(v @ v.T)
        for b in range(len(directions)):
            yield tuple(V if k == b else np.zeros_like(V) for k, V in enumerate(directions))
        if len(directions) > 1:
            yield tuple(directions)

    def certificate(
        self, at: LogDetIterate, log_det_of: LogDeterminants | None = None, **known: Unpack[Known]
    ) -> Certificate:
        """Return the certificate of an iterate, from its factors and the values already computed."""
        if log_det_of is None:
            of_Z = (0.0,) * len(at.X) if at.Z_root is None else tuple(map(log_det, at.Z_root))
            log_det_of = LogDeterminants(tuple(map(log_det, at.X_root)), of_Z)
        blocks = list(zip(self._terms, at.X, *log_det_of, strict=True))
        known["divergences"] = tuple(term.divergence_at(X, of_X) for term, X, of_X, _ in blocks)
        proves = at.Z_root is not None
        least = tuple(term.least(of_Z) if proves else -math.inf for term, _, _, of_Z in blocks)
        known |= Known(matrix_terms=least, activity=at.activity, cone_residual=0.0)
        found = certify(PrimalDualPoint(self.program, at.X, np.zeros(0), at.y, **known))
        residual = self._progress.missed(at.X, np.zeros(0), at.activity)
        return replace(found, primal_residual=max(found.primal_residual, residual))


class _LogDetTerm:
    """The terms ``<C, X> + mu D(X, X0)`` of one block, as ``<C + mu inv(X0), X> - mu logdet X``."""

    def __init__(self, block: Block) -> None:
        nearness = block.nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        assert isinstance(divergence, LogDet)
        self.mu, self.X0 = nearness.mu, np.asarray(nearness.X0)
        self.C: Array = block.C + self.mu * divergence.inverse
        self._inverse, self._log_det = divergence.inverse, log_det(divergence.L)
        self._has_cost = block.cost is not None

    def minimizer(self) -> Array | None:
        """Return the unconstrained minimizer, None if there is none."""
        if not self._has_cost:
            return self.X0.copy()
        root = root_of(self.C)
        return None if root is None else self.mu * inverse_of(root)

    def divergence_at(self, X: Array, logarithm: float) -> float:
        """Return ``D(X, X0)``, for a given ``logdet X``."""
        return float(np.vdot(self._inverse, X)) - len(X) - logarithm + self._log_det

    def least(self, logarithm: float) -> float:
        """Return the minimum of ``<Z, X> - mu logdet X`` plus constants, for a given ``logdet Z``."""
        return self.mu * (logarithm + self._log_det - len(self.X0) * math.log(self.mu))
