"""Arrays with proven error bounds: a midpoint and a radius for each entry, in rounding to nearest.

A :class:`Ball` stands for every array whose entries differ from `mid` by at most `rad`. Its operations return
a ball that contains the exact result for every array of the operands. No rounding mode is switched: the
radii come from the standard model ``fl(a op b) = (a op b)(1 + d) + e``, ``|d| <= u = 2^-53``, where ``e`` is
the underflow of a product (Higham 2002, §2.2 and §2.8). A sum of products of ``k`` terms, in any order, with
or without fused operations, has an error of at most ``gamma_k |x|'|y|`` with ``gamma_k = k u / (1 - k u)``
(Higham 2002, §3.1). docs/trust/rounding.md has the analysis of each operation.

NumPy's and the C library's logarithms and exponentials are accurate to a few units in the last place, on
every processor for which they are built (NumPy's own tests ask for four). Twice that is assumed here; nothing
else about them is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.records import dataclass

UNIT = EPS / 2  # the unit round-off u
_LONG = 50  # terms of sums from which a product is split
_FEW = 1 + 32 * UNIT  # covers the rounding of up to 16 operations on nonnegative numbers
_ULPS = 16 * UNIT  # relative error: eight units in the last place


def gamma(k: int) -> float:
    """Return an upper bound on ``gamma_k / (1 - gamma_k) = k u / (1 - 2 k u)``.

    It multiplies a *computed* sum of ``k`` nonnegative terms, which may itself be too small by the factor
    ``1 - gamma_k``.
    """
    if 4 * k * UNIT >= 1:
        raise ValueError(f"a sum of {k} terms; expected fewer than {1 / (4 * UNIT):.1g}")
    return k * UNIT / (1 - 2 * k * UNIT) * _FEW


def inflated(rad: Any) -> Any:
    """Return nonnegative numbers raised by more than the rounding of 16 operations that led to them."""
    return rad * _FEW


def raised(end: Array, rad: Array) -> Array:
    """Return upper bounds on numbers within `rad` of `end`, exact where `rad` is zero."""
    return np.where(rad > 0, np.nextafter(end + rad, np.inf), end)


def down(x: float) -> float:
    """Return the next double below."""
    return math.nextafter(x, -math.inf)


def up(x: float) -> float:
    """Return the next double above."""
    return math.nextafter(x, math.inf)


@dataclass(frozen=True, eq=False)
class Ball:
    """All arrays within `rad` of `mid`, entry by entry.

    Parameters
    ----------
    mid : array
    rad : array of the same shape
        Nonnegative; infinite where nothing is known.
    """

    mid: Array
    rad: Array

    __array_ufunc__ = None  # an array on the left leaves the operation to the ball

    @classmethod
    def exact(cls, mid: Any) -> Ball:
        """Return the ball of one array."""
        mid = np.asarray(mid, dtype=float)
        return cls(mid, np.zeros_like(mid))

    @classmethod
    def of(cls, value: Any) -> Ball:
        """Return a ball unchanged, and numbers as exact ones."""
        return value if isinstance(value, Ball) else cls.exact(value)

    @classmethod
    def between(cls, lo: Any, hi: Any) -> Ball:
        """Return a ball that contains the intervals from finite `lo` to `hi`."""
        mid = (np.asarray(lo) + np.asarray(hi)) / 2
        return cls(mid, _grown(np.maximum(hi - mid, mid - lo), mid))

    @classmethod
    def joined(cls, parts: Sequence[Ball]) -> Ball:
        """Return balls one after the other, along the first axis."""
        return cls(np.concatenate([part.mid for part in parts]), np.concatenate([part.rad for part in parts]))

    def reshape(self, *shape: int) -> Ball:
        """Return the arrays in another shape."""
        return Ball(self.mid.reshape(shape), self.rad.reshape(shape))

    @property
    def lo(self) -> Array:
        """Lower ends."""
        return np.nextafter(self.mid - self.rad, -np.inf)

    @property
    def hi(self) -> Array:
        """Upper ends."""
        return np.nextafter(self.mid + self.rad, np.inf)

    @property
    def magnitude(self) -> Array:
        """Upper bounds on the absolute values."""
        return inflated(np.abs(self.mid) + self.rad)

    @property
    def T(self) -> Ball:
        """The transpose."""
        return Ball(self.mid.T, self.rad.T)

    @property
    def _nonzero(self) -> Mask:
        mask: Mask = (self.mid != 0) | (self.rad != 0)
        return mask

    def __getitem__(self, key: Any) -> Ball:
        return Ball(np.asarray(self.mid[key]), np.asarray(self.rad[key]))

    def __setitem__(self, key: Any, part: Ball) -> None:
        self.mid[key], self.rad[key] = part.mid, part.rad

    def __neg__(self) -> Ball:
        return Ball(-self.mid, self.rad)

    def __add__(self, other: Any) -> Ball:
        b = Ball.of(other)
        mid = self.mid + b.mid
        return Ball(mid, _grown(self.rad + b.rad, mid))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Ball:
        return self + -Ball.of(other)

    def __rsub__(self, other: Any) -> Ball:
        return -self + other

    def __mul__(self, other: Any) -> Ball:
        b = Ball.of(other)
        mid = self.mid * b.mid
        spread = np.abs(self.mid) * b.rad + self.rad * (np.abs(b.mid) + b.rad)
        return Ball(mid, _grown(spread, mid) + TINY * (self._nonzero & b._nonzero))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Ball:
        """Return the quotient by nonzero numbers."""
        b = Ball.of(other)
        mid = self.mid / b.mid
        least = np.abs(b.mid) - b.rad
        with np.errstate(divide="ignore", invalid="ignore"):
            # For a* and b* in the balls: a*/b* - mid = (a - mid b + (a* - a) - mid (b* - b)) / b*, and
            # |a - mid b| <= u |mid b| / (1 - u).
            off = 2 * UNIT * np.abs(mid) * np.abs(b.mid)
            spread = (self.rad + np.abs(mid) * b.rad + off) / (least * (1 - 8 * UNIT))
            rad = _grown(spread, mid) + TINY * self._nonzero * (1 + 1 / least)
        return Ball(mid, np.where(least > 0, rad, np.inf))

    def __matmul__(self, other: Any) -> Ball:
        """Return the matrix product."""
        b = Ball.of(other)
        k = self.mid.shape[-1]
        found = _product(self.mid, b.mid)
        rad = found.rad
        if b.rad.any():
            rad = rad + (1 + gamma(k + 2)) * (np.abs(self.mid) @ b.rad)
        if self.rad.any():
            rad = rad + (1 + gamma(k + 2)) * (self.rad @ (np.abs(b.mid) + b.rad))
        return Ball(found.mid, inflated(rad) + k * TINY)

    def times(self, v: Any) -> Ball:
        """Return the product with a vector, as one with a matrix, which rounds long sums less."""
        return (self @ Ball.of(v)[:, None])[:, 0]

    def sum(self, axis: int | None = None) -> Ball:
        """Return the sum of all entries, or along an axis."""
        if axis is None:
            (mid, k), (size, _), (spread, _) = map(_in_pairs, (self.mid, np.abs(self.mid), self.rad))
        else:
            mid, size, spread = (part.sum(axis) for part in (self.mid, np.abs(self.mid), self.rad))
            k = self.mid.shape[axis]
        rad = gamma(k + 1) * size + (1 + gamma(k + 1)) * spread
        return Ball(np.asarray(mid), np.asarray(inflated(rad)))

    def dot(self, other: Any) -> Ball:
        """Return the inner product of two arrays of one shape, with one rounding of the sum."""
        b = Ball.of(other)
        product = (self * b) if self.mid.shape == b.mid.shape else None
        assert product is not None
        terms, k = product.mid.ravel(), product.mid.size
        if k and not np.isfinite(terms).all():
            return Ball(np.asarray(math.nan), np.asarray(math.inf))
        total = math.fsum(terms)  # correctly rounded
        rad = (1 + gamma(k + 1)) * float(product.rad.sum()) + UNIT * abs(total)
        return Ball(np.asarray(total), np.asarray(inflated(rad)))

    def symmetric_norm(self) -> float:
        """Return an upper bound on the spectral norms of the symmetric matrices: the largest row sum."""
        rows = self.magnitude.sum(axis=1)
        return float(rows.max(initial=0.0)) * (1 + gamma(len(rows) + 1))

    def frobenius(self) -> float:
        """Return an upper bound on the Frobenius norms (Euclidean for vectors)."""
        largest = self.magnitude
        top = float(largest.max(initial=0.0))
        if top == 0 or not math.isfinite(top):
            return top
        share = largest / top  # squares of small numbers underflow
        return top * math.sqrt(float((share * share).sum())) * (1 + gamma(share.size + 4))

    def row_norms(self) -> Array:
        """Return upper bounds on the norms of the rows."""
        M, n = self.magnitude, self.mid.shape[1]
        found: Array = inflated(np.sqrt((M * M).sum(axis=1) * (1 + gamma(n + 2)))) + math.sqrt(n * TINY)
        return found


def _in_pairs(x: Array) -> tuple[Array, int]:
    """Return the sum of all entries, and the number of additions on the way of each."""
    x, k = x.ravel(), 0
    while len(x) > 1:
        half = (len(x) + 1) // 2
        y = x[:half].copy()
        y[: len(x) - half] += x[half:]
        x, k = y, k + 1
    return x.sum(), k


def _grown(rad: Array, mid: Array) -> Array:
    """Return the radius after a rounding of `mid`; a result of zero is exact unless a product underflows."""
    size = np.abs(mid)
    return np.asarray(inflated(rad + UNIT * size) + TINY * (size > 0))


def _product(A: Array, B: Array) -> Ball:
    """Return the product of two exact arrays; for long sums, with an error near one rounding of each entry.

    The leading bits of both are multiplied without rounding (Ozaki, Ogita, Oishi and Rump 2012): integers of
    ``beta`` bits times powers of two, with ``k 2^(2 beta) <= 2^53``. The rest is smaller by ``2^beta``, and
    so is its rounding.
    """
    k = A.shape[-1]
    if k >= _LONG and A.ndim == B.ndim == 2:
        beta = (53 - (k - 1).bit_length()) // 2
        (A_top, A_rest, a), (B_top, B_rest, b) = _split(A, 1, beta), _split(B, 0, beta)
        # k products of |A_top| <= a and |B_rest| <= 2^-beta b / 2, and k of |A_rest| <= 2^-beta a / 2 and |B|
        a *= k * 2.0**-beta
        if a.sum() * b.sum() < np.abs(A).sum(axis=0) @ np.abs(B).sum(axis=1):
            mid = A_top @ B_top + (A_top @ B_rest + A_rest @ B)
            return Ball(mid, inflated(UNIT * np.abs(mid) + gamma(k + 2) * a * b))
    return Ball(A @ B, inflated(gamma(k + 2) * (np.abs(A) @ np.abs(B))))


def _split(A: Array, axis: int, beta: int) -> tuple[Array, Array, Array]:
    """Return the part of `A` with the leading `beta` bits of each vector on an axis, the rest, and bounds.

    With powers of two ``q``, one for each vector, the leading part is ``A / q`` rounded to integers of at
    most ``2^beta``, times ``q``; all entries are at most ``2^beta q``.
    """
    largest = np.abs(A).max(axis=axis, keepdims=True, initial=0.0)
    exponent = np.frexp(largest)[1] - beta
    q = np.ldexp(1.0, np.maximum(exponent, -1000))
    top = np.rint(A / q) * q
    return top, A - top, np.ldexp(q, beta)


def sparse_product(A: Any, A_rad: Any, x: Ball) -> Ball:
    """Return ``(A ± A_rad) x`` for a CSR array; rows without stored entries are exactly zero.

    Parameters
    ----------
    A : csr_array of shape (m, n)
    A_rad : csr_array of shape (m, n) or None
        Radii of the entries; None for exact ones.
    x : Ball of shape (n,) or (n, q)
    """
    counts: IntArray = np.diff(A.indptr)
    if not x._nonzero.any():
        return Ball.exact(np.zeros((A.shape[0], *x.mid.shape[1:])))
    k = int(counts.max(initial=0))
    size = abs(A)
    rad = gamma(k + 2) * (size @ np.abs(x.mid))
    if x.rad.any():
        rad = rad + (1 + gamma(k + 2)) * (size @ x.rad)
    if A_rad is not None:
        rad = rad + (1 + gamma(k + 2)) * (A_rad @ (np.abs(x.mid) + x.rad))
    occurs = sp.csr_array((np.ones(len(A.data)), A.indices, A.indptr), A.shape)
    return Ball(A @ x.mid, inflated(rad) + TINY * (occurs @ x._nonzero.astype(float)))  # products underflow


def log(x: Ball) -> Ball:
    """Return the natural logarithm; its radius is infinite where a number may not be positive."""
    lo, hi = x.lo, x.hi
    with np.errstate(divide="ignore", invalid="ignore"):
        below, above = np.log(lo), np.log(hi)
    below, above = below - _ULPS * np.abs(below), above + _ULPS * np.abs(above)
    return _between(below, above, lo > 0)


def exp(x: Ball) -> Ball:
    """Return the exponential; its radius is infinite where it overflows."""
    with np.errstate(over="ignore"):
        below, above = np.exp(x.lo), np.exp(x.hi)
    below, above = below * (1 - _ULPS) - TINY, above * (1 + _ULPS) + TINY
    return _between(np.maximum(below, 0.0), above, np.isfinite(above))


def _between(lo: Array, hi: Array, valid: Mask) -> Ball:
    lo, hi = np.where(valid, lo, 0.0), np.where(valid, hi, 0.0)
    found = Ball.between(lo, hi)
    return Ball(found.mid, np.where(valid, found.rad, np.inf))
