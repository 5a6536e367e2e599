"""Small helpers of numerical linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, blas, eigvals_banded, lapack

from bregopt.arrays import EPS, Array, IntArray, covers, span
from bregopt.clock import checkpoint, threads_for

# Residual of a definite system, relative to the right-hand side, above which it is refined.
DEFINITE_RESIDUAL = 1e-13
# Diagonal entry up to which a row of a system is a row of zeros.
ZERO_DIAGONAL = 1e-200
# Least pivot of a definite system, relative to the root of its diagonal entry; its square is round-off.
_LEAST_PIVOT = 1e-7

# Order, and ratio of the order to the bandwidth, from which a band takes a third of the time or less.
_LEAST_BANDED, _SPARSE = 500, 40
FLAT = 1e-14  # curvature along a direction, relative to the preconditioner's, that is none
_FEW_COLUMNS = 4  # up to which a sparse matrix is stored dense for products
_FEW_ENTRIES = 20_000  # entries up to which a dense product takes no longer than the calls for a sparse one
_WHOLE = 2_000  # the order up to which a matrix is factorized in one call, of about 0.1 seconds
# Between two checkpoints of a factorization there are `_PRODUCT` operations, or `_LEAST_WIDTH` columns if
# those take more.
_PRODUCT, _LEAST_WIDTH = 4_000_000_000, 192
# LAPACK inverts triangular matrices entry by entry. Between these orders BLAS, applied to the identity, is
# faster: 1.8 times at an order of 100 in single precision.
_SMALL, _LARGE = 32, 700
_LEAF = 128  # order from which halves, of which one corner is zero, are faster
_BLOCK = 128  # rows and columns of a block in a transpose
_PANEL = 32  # columns that LAPACK reduces together, in its work space


def root_of(S: Array) -> Array | None:
    """Return the lower Cholesky factor in the precision of `S`, None where it is not positive definite."""
    if len(S) == 0:
        return S
    potrf = lapack.spotrf if S.dtype == np.float32 else lapack.dpotrf
    root, info = potrf(S.T, lower=1, clean=1)  # the transpose is in LAPACK's order
    return root if info == 0 and math.isfinite(root.trace()) else None


def factorized(S: Array, overwrite: bool = False) -> tuple[Array, bool]:
    """Return an array with the lower Cholesky factor in its lower triangle, and whether `S` has one.

    A large matrix, which takes LAPACK seconds in one call, is factorized by blocks of columns with a
    checkpoint before each.

    Parameters
    ----------
    S : array of shape (n, n)
        Symmetric.
    overwrite : bool
        Whether the factor may take the place of a C-contiguous `S`.

    Raises
    ------
    CutShort
        If the work is to end.
    """
    n = len(S)
    if n <= _WHOLE:
        # The transpose is in LAPACK's order.
        root, info = lapack.dpotrf(S.T, lower=1, clean=0, overwrite_a=overwrite)
        return root, info == 0
    checkpoint()
    L, width = S.T if overwrite else np.array(S.T, order="F"), max(_LEAST_WIDTH, _PRODUCT // n**2)
    for a in range(0, n, width):
        checkpoint()
        b = min(a + width, n)
        if a:
            L[a:, a:b] -= L[a:, :a] @ L[a:b, :a].T
        L[a:b, a:b], info = lapack.dpotrf(L[a:b, a:b], lower=1, clean=0)
        if info != 0:
            return L, False
        L[b:, a:b] = blas.dtrsm(1.0, L[a:b, a:b], L[b:, a:b], side=1, lower=1, trans_a=1)
    return L, True


# Pays on: contradicting bands, n = 2,000.
def eigenvalues_of(S: Array) -> Array:
    """Return the eigenvalues of a symmetric matrix, ascending.

    LAPACK itself takes half the time of NumPy's function at small orders, and as long at large ones.
    The nonzeros of a large sparse matrix are ordered to a band (Cuthill and McKee 1969), which costs the
    square of the order.
    """
    n = len(S)
    values: Any
    if n >= _LEAST_BANDED and np.count_nonzero(S) <= n * n / _SPARSE:
        from scipy.sparse.csgraph import reverse_cuthill_mckee  # only large matrices wait for it

        A = sp.csr_array(S)
        order = reverse_cuthill_mckee(A, symmetric_mode=True)
        place = np.empty(n, dtype=np.intp)
        place[order] = np.arange(n)
        i, j = A.nonzero()
        i, j = place[i], place[j]
        width = int(np.abs(i - j).max(initial=0))
        if width * _SPARSE <= n:
            lower = i >= j
            band = np.zeros((width + 1, n))
            band[(i - j)[lower], j[lower]] = A.data[lower]
            values = eigvals_banded(band, lower=True, check_finite=False)
            return np.asarray(values)
    syevd = lapack.ssyevd if S.dtype == np.float32 else lapack.dsyevd
    values, _, info = syevd(S, compute_v=0, lower=1, lwork=(2 + _PANEL) * n + 1)
    if info != 0:
        raise LinAlgError("the eigenvalues did not converge")
    return np.asarray(values)


def turned(R: Array) -> Array:
    """Return ``R V`` with orthogonal ``V``, such that its columns are orthogonal, the longest first.

    ``V`` has the eigenvectors of ``R'R``, so columns shorter than 1e-8 of the longest are round-off.
    """
    _, V = np.linalg.eigh(R.T @ R)
    columns: Array = R @ V[:, ::-1]
    return columns


def null_space(M: Array, tol: float) -> Array:
    """Return an orthonormal basis of the null space, as rows; `tol` is relative to the largest value.

    The triangle of a tall matrix has the same null space, and no square of its number of rows.
    """
    triangle = np.linalg.qr(M, mode="r") if len(M) > M.shape[1] else M
    _, s, Q = np.linalg.svd(triangle)
    basis: Array = Q[int((s > tol * s.max(initial=0.0)).sum()) :]
    return basis


def log_det(root: Array) -> float:
    """Return ``logdet(L L')``."""
    return 2 * float(np.log(root.diagonal()).sum())


def inverse_of(root: Array) -> Array:
    """Return the inverse of ``L L'`` for a factor that :func:`root_of` returned."""
    single = root.dtype == np.float32
    if _SMALL < len(root) <= _LARGE:
        lauum = lapack.slauum if single else lapack.dlauum
        lower, _ = lauum(_triangle_inverse(root), lower=1, overwrite_c=1)
    else:
        potri = lapack.spotri if single else lapack.dpotri
        lower, _ = potri(root, lower=1)  # its upper triangle is zero, as that of the root
    if len(lower) <= _BLOCK:
        inverse = lower + lower.T
    else:
        inverse = symmetrize(lower)
        inverse *= 2
    inverse.ravel(order="K")[:: len(inverse) + 1] /= 2  # a view of the diagonal
    return inverse


def _triangle_inverse(L: Array) -> Array:
    """Return the inverse of a lower triangular matrix, a large one by halves."""
    n, half = len(L), len(L) // 2
    if n <= _LEAF:
        trsm = blas.strsm if L.dtype == np.float32 else blas.dtrsm
        inverse: Array = trsm(1.0, L, np.eye(n, dtype=L.dtype, order="F"), lower=1, overwrite_b=1)
        return inverse
    inverse = np.zeros_like(L, order="F")
    inverse[:half, :half] = first = _triangle_inverse(L[:half, :half])
    inverse[half:, half:] = second = _triangle_inverse(L[half:, half:])
    inverse[half:, :half] = -(second @ L[half:, :half]) @ first
    return inverse


def symmetrize(S: Array) -> Array:
    """Return ``(S + S') / 2``, overwriting `S`; of each matrix if `S` is a stack, shape ``(B, n, n)``."""
    if S.ndim == 3:
        return np.multiply(S + S.swapaxes(1, 2), 0.5, out=S)
    if len(S) <= _BLOCK:
        whole = S + S.T
        return np.multiply(whole, 0.5, out=S)
    # In blocks, as a whole transpose misses the cache on each line.
    for a in range(0, len(S), _BLOCK):
        b = a + _BLOCK
        own = S[a:b, a:b]
        own[:] = (own + own.T) / 2
        if b < len(S):
            right, below = S[a:b, b:], S[b:, a:b]
            right += below.T
            right /= 2
            below[:] = right.T
    return S


def is_definite(S: Array) -> bool:
    """Whether the smallest eigenvalue of a symmetric matrix is above the round-off of the largest."""
    with threads_for(len(S)):
        # A factorization that succeeds with a margin for round-off makes the eigenvalues unnecessary.
        room = len(S) * EPS * float(np.linalg.norm(S))
        if root_of(S - room * np.eye(len(S))) is not None:
            return True
        eigenvalues = np.linalg.eigvalsh(S)
    return bool(eigenvalues[0] > len(S) * EPS * eigenvalues[-1])


def dense(S: Any) -> Array:
    """Return a dense array from a dense or sparse one."""
    array: Array = S if isinstance(S, np.ndarray) else S.toarray()
    return array


def csr_of(value: Array, row: IntArray, column: IntArray, shape: tuple[int, int]) -> Any:
    """Return the sparse matrix of entries; SciPy's COO form takes three times as long."""
    value, row, column = added_up(value, row, column, shape[1])
    return sp.csr_array((value, column, row.searchsorted(np.arange(shape[0] + 1))), shape)


def added_up(value: Array, row: IntArray, column: IntArray, width: int) -> tuple[Array, IntArray, IntArray]:
    """Return the entries of a sparse matrix row by row, those at one place added up."""
    place = np.multiply(row, width, dtype=np.intp) + column
    if not (place[1:] > place[:-1]).all():
        order = place.argsort(kind="stable")
        place = place[order]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        value, place = np.add.reduceat(value[order], starts), place[starts]
        row, column = np.divmod(place, width)
    return value, row, column


def row_counts(F: Any) -> IntArray:
    """Return the number of nonzeros in each row of a dense or CSR array."""
    counts: IntArray = np.diff(F.indptr) if sp.issparse(F) else np.count_nonzero(F, axis=1)
    return counts.astype(np.intp)


def rows_at(A: Any, rows: IntArray, factor: Array | None = None) -> Any:
    """Return some rows of a CSR matrix, times factors if given, or itself; SciPy's index takes longer."""
    if factor is None and covers(span(rows), A.shape[0]):
        return A
    starts, count = A.indptr[rows], np.diff(A.indptr)[rows]
    ends = np.concatenate([[0], np.cumsum(count)])
    at = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], count)
    value = A.data[at] if factor is None else np.repeat(factor, count) * A.data[at]
    return sp.csr_array((value, A.indices[at], ends), (len(rows), A.shape[1]))


def columns_at(A: Any, columns: IntArray) -> Any:
    """Return some columns of a CSR matrix, ascending; SciPy's index takes longer."""
    place = np.full(A.shape[1], -1)
    place[columns] = np.arange(len(columns))
    at = place[A.indices]
    own = at >= 0
    ends = np.concatenate([[0], own.cumsum()])[A.indptr]
    return sp.csr_array((A.data[own], at[own], ends), (A.shape[0], len(columns)))


def absolute_product(A: Any, s: Array) -> Array:
    """Return ``|A| s`` for a matrix, dense or CSR; SciPy's matrix of absolute values takes longer."""
    if isinstance(A, np.ndarray):
        product: Array = np.abs(A) @ s
        return product
    row = np.arange(A.shape[0]).repeat(np.diff(A.indptr))
    return np.bincount(row, np.abs(A.data) * s[A.indices], A.shape[0]).astype(float)


def lean(B: Any) -> Any:
    """Return a sparse matrix in its fastest form for products.

    It is dense with few columns or entries, or if half of the entries are stored, and CSR otherwise.
    """
    if B.shape[1] == 0:
        return np.zeros(B.shape)
    size = B.shape[0] * B.shape[1]
    few = B.shape[1] <= _FEW_COLUMNS or size <= _FEW_ENTRIES
    return B.toarray() if few or 2 * B.nnz >= size else sp.csr_array(B)


def without_noise(y: Array, sizes: Array, part: float) -> Array:
    """Return `y` with zero where its size is a small part of the largest."""
    sizes = np.abs(sizes)
    return np.where(sizes > part * sizes.max(initial=0.0), y, 0.0)


class DefiniteFactor:
    """A factorized positive definite matrix, its diagonal increased slightly where rows are dependent.

    Parameters
    ----------
    S : array of shape (m, m)
        Positive semidefinite; not to be changed afterwards.
    repair : bool
        Whether the diagonal of a matrix that is not positive definite is increased.

    Raises
    ------
    LinAlgError
        Without `repair`, if the matrix is not positive definite by more than round-off. With it, if its
        diagonal is not finite.
    """

    def __init__(self, S: Array, repair: bool = True) -> None:
        self._S, extra, diagonal = S, 0.0, S.diagonal()
        sizes = np.where(diagonal > ZERO_DIAGONAL, diagonal, 1.0)
        # Round-off may leave a singular matrix a pivot of its own size, and solutions the inverse of that.
        least = np.sqrt(EPS) if repair else _LEAST_PIVOT
        while len(S):
            self._root, definite = _factorized_with(S, extra * sizes) if extra else factorized(S)
            if definite and (extra or np.logical_and.reduce(self._root.diagonal() > least * np.sqrt(sizes))):
                break
            if not repair or not np.isfinite(diagonal).all():
                raise LinAlgError("the matrix is not positive definite")
            extra = max(10 * extra, 1e-14)
        self._refinements = 3 if extra else 1

    def solve(self, right: Array, refined: bool = True) -> Array:
        """Return the solutions for the columns of `right`; not `refined` if the caller refines."""
        if len(right) == 0:
            return right
        x, _ = lapack.dpotrs(self._root, right, lower=1)
        for _ in range(self._refinements if refined else 0):
            residual = right - self._S @ x
            missed, size = residual.ravel(), right.ravel()
            if missed @ missed <= DEFINITE_RESIDUAL**2 * (size @ size):
                break
            x += lapack.dpotrs(self._root, residual, lower=1)[0]
        return x


def _factorized_with(S: Array, extra: Array) -> tuple[Array, bool]:
    """Return :func:`factorized` of the matrix with its diagonal increased."""
    diagonal = np.einsum("ii->i", S)  # a view: a copy of the matrix costs a tenth of its factorization
    given = diagonal.copy()
    diagonal += extra
    try:
        return factorized(S)
    finally:
        diagonal[:] = given


def conjugate_gradients(
    product: Callable[[Array], Array],
    right: Array,
    inverse: Callable[[Array], Array],
    tol: float,
    limit: int,
    flat: float = FLAT,
) -> tuple[Array, Array | None]:
    """Solve a positive semidefinite system in arrays of any shape by preconditioned conjugate gradients.

    Parameters
    ----------
    product : callable
        The matrix, times an array.
    right : array
    inverse : callable
        The preconditioner: an approximate inverse, times an array.
    tol : float
        Relative residual, in the norm of the preconditioner.
    limit : int
        Limit on the products.
    flat : float
        Curvature, relative to that of the preconditioner, that counts as none.

    Returns
    -------
    array
        The last iterate.
    array or None
        A direction without curvature, of the length of a preconditioned step, where one ended the iteration.
    """
    x, r = np.zeros_like(right), right
    z = p = inverse(r)
    rz = size = float(np.vdot(r, z))  # the size of p in the norm of the preconditioned matrix
    enough = tol**2 * rz
    for _ in range(limit):
        checkpoint()
        if not rz > enough:
            break
        Hp = product(p)
        curvature = float(np.vdot(p, Hp))
        if not curvature > flat * size:
            return x, rz / size * p
        alpha = rz / curvature
        x = x + alpha * p
        r = r - alpha * Hp
        z = inverse(r)
        rz, old = float(np.vdot(r, z)), rz
        p = z + (rz / old) * p
        size = rz + (rz / old) ** 2 * size
    return x, None
