"""A row family: sums along diagonals, the rows of trigonometric polynomials; and an atom for it."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import toeplitz

from bregopt.modeling.expressions import Expression
from bregopt.program.rows import Coordinates, RowFamily


@dataclass(frozen=True, eq=False)
class DiagonalSums(RowFamily):
    """Rows ``weight_k sum_i X[i, i + lag_k]``."""

    n: int
    lag: np.ndarray
    weight: np.ndarray

    @property
    def m(self):
        return len(self.lag)

    def apply(self, X):
        dense = np.asarray(X)
        return self.weight * np.array([np.trace(dense, offset=k) for k in self.lag])

    def adjoint(self, y):
        sums = np.bincount(self.lag, y * self.weight, self.n)
        return toeplitz(np.where(np.arange(self.n) > 0, sums / 2, sums))

    def slice(self, rows):
        return replace(self, lag=self.lag[rows], weight=self.weight[rows])

    def scale(self, weight):
        return replace(self, weight=self.weight * weight)

    def coordinates(self):
        row = np.repeat(np.arange(self.m), self.n - self.lag)
        i = np.concatenate([np.arange(self.n - k) for k in self.lag])
        return Coordinates(row, i, i + self.lag[row], self.weight[row])


def diagonal_sums(X, lags):
    """Return the sums of some diagonals of a matrix variable, an expression of shape ``(len(lags),)``."""
    lag = np.asarray(lags)
    rows = DiagonalSums(X.n, lag, np.ones(len(lag)))
    return Expression((len(lag),), np.zeros(len(lag)), {X: rows}, label="diagonal_sums")
