"""Atoms of matrices' entropies, and of numbers with exponentials and logarithms. All are in nats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import Array, complex_array, hermitian_matrix
from bregopt.modeling.complex_expressions import ComplexForms, as_complex, hermitian_parts, is_hermitian
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.atom import Atom, ConvexPart, Parts, Row, sign_of, svec
from bregopt.modeling.convex.expression import (
    CurvedExpression,
    as_curved,
    curved,
    curved_argument,
    symmetric_argument,
)
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand
from bregopt.modeling.variables import PSD
from bregopt.program.convex_functions import (
    ConvexFunction,
    Exponential,
    Logistic,
    LogSumExp,
    NegativeEntropy,
    NumbersRelativeEntropy,
    entries_of,
    hmat,
    hvec,
    hvec_length,
    times_log,
    upper_places,
)
from bregopt.program.matrix_entropies import EntropySum, RelativeEntropy, TraceLog
from bregopt.records import replace

_LARGEST_KRONECKER = 4_000_000  # terms of a map by Kronecker products; larger ones are formed densely
_NULL = 1e-12  # eigenvalues of sums of Kraus operators, relative to the largest, that are zero


class ConvexAtom(Atom):
    """Functions of :mod:`bregopt.program.convex_functions`, or minus them, of one vector of arguments.

    Parameters
    ----------
    function : ConvexFunction
    arguments : sequence of expressions
        The parts of the function's vector of arguments.
    text : str
        The atom in messages.
    shape : tuple of int
    convex : bool
        Whether the atom is the function itself. Otherwise it is minus the function.
    rises : bool
        Whether the atom is nondecreasing in its arguments.
    sign : int
    positive : bool
        Whether the arguments are numbers from zero up; rows say so, as a bound of the problem may need them.
    """

    def __init__(
        self,
        function: ConvexFunction,
        arguments: Sequence[Any],
        text: str,
        shape: tuple[int, ...] = (),
        convex: bool = True,
        rises: bool = False,
        sign: int = 0,
        positive: bool = False,
    ) -> None:
        self.function, self._text, self.sign = function, text, sign
        self._positive = positive
        self.convex = convex  # type: ignore[misc]
        self.rises = rises  # type: ignore[misc]
        super().__init__(*arguments, shape=shape)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name in messages."""
        return self._text.partition("(")[0]

    @property
    def label(self) -> str:
        """The atom and its arguments in messages."""
        return self._text

    def numbers(self, *values: Array) -> Any:
        """Return the value at numerical arguments."""
        value = self.function.value(np.concatenate([np.ravel(v) for v in values]))
        value = value if self.convex else -value
        return value.reshape(self.shape) if self.shape else float(value[0])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        """Return the rows ``f <= t``, or ``f <= -t`` for minus the function."""
        flat = t.taken(np.arange(t.size), (t.size,), t.label)
        row = -flat <= 0 if self.convex else flat <= 0
        assert isinstance(row, Constraint)
        row.convex_part = ConvexPart(self.function, _vector(arguments), np.ones(self.function.count))
        return [row, *self._domain(arguments)]

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        """Return the functions themselves, as terms of the objective."""
        part = ConvexPart(self.function, _vector(arguments), np.abs(weights), parameter)
        return Parts(self._domain(arguments), terms=[part])

    def _domain(self, arguments: Sequence[Any]) -> list[Row]:
        """Return the rows of arguments that are no numbers from zero up by their declaration."""
        if not self._positive:
            return []
        rows: list[Any] = [e >= 0 for e in arguments if not e.expression().is_constant and sign_of(e) <= 0]
        for row in rows:
            row.is_domain = True
        return rows


def _vector(arguments: Sequence[Any]) -> Expression:
    """Return all arguments as one vector."""
    parts = [a.expression() for a in arguments]
    flat = [e.taken(np.arange(e.size), (e.size,), e.label) for e in parts]
    return flat[0] if len(flat) == 1 else Expression.concatenated(flat)


# --- entropies of matrices


def von_neumann_entr(X: Operand) -> CurvedExpression:
    """Return the von Neumann entropy ``-tr X log X``, in nats; it is concave.

    Parameters
    ----------
    X : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian. Its domain is the positive semidefinite matrices.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `X` is not affine, not square, not symmetric or Hermitian, or contains no variable.
    """
    x, n, hermitian = _matrix(X, "X of von_neumann_entr")
    function = EntropySum((n,), (1.0,), hermitian)
    return curved(ConvexAtom(function, [x], f"von_neumann_entr({_name(X)})", convex=False))


def quantum_rel_entr(A: Operand | ArrayLike, B: Operand | ArrayLike) -> CurvedExpression:
    """Return the quantum relative entropy ``tr A (log A - log B)``, in nats; it is jointly convex.

    Parameters
    ----------
    A, B : PSD, affine expressions or array_like of shape (n, n)
        Symmetric or Hermitian. One of them may be constant: a constant `A` positive semidefinite, a constant
        `B` positive definite.

    Returns
    -------
    CurvedExpression
        A scalar. With ``tr A = tr B`` it is never negative.

    Raises
    ------
    TypeError, ValueError
        If an argument is not affine, not square, or not symmetric or Hermitian, if their orders differ, if
        both are constant, or if a constant one has eigenvalues that are not allowed.

    References
    ----------
    Lindblad (1974), Expectations and entropy inequalities for finite quantum systems.
    """
    text = f"quantum_rel_entr({_name(A)}, {_name(B)})"
    if not isinstance(A, Operand) and not isinstance(B, Operand):
        raise TypeError("quantum_rel_entr has two constant arguments; expected an expression among them")
    if not isinstance(B, Operand):
        x, n, hermitian = _matrix(A, "A of quantum_rel_entr")
        start = _constant(B, "B of quantum_rel_entr", n, hermitian)
        d, U = np.linalg.eigh(start)
        if d[0] <= 0:
            raise ValueError(
                f"B of quantum_rel_entr is not positive definite: its smallest eigenvalue is {d[0]:.3g}; "
                "restrict A to the range of B first"
            )
        cost = hvec((U * np.log(d)) @ U.conj().T)
        entropy = curved(ConvexAtom(EntropySum((n,), (1.0,), hermitian), [x], text))
        return entropy - (x * cost).summed()
    y, n, hermitian = _matrix(B, "B of quantum_rel_entr")
    if not isinstance(A, Operand):
        C, d = _constant_psd(A, "A of quantum_rel_entr", n, hermitian)
        return curved(ConvexAtom(TraceLog(C, hermitian), [y], text)) + float(times_log(d).sum())
    x, order, own_hermitian = _matrix(A, "A of quantum_rel_entr")
    if order != n:
        raise ValueError(f"the arguments of {text} have orders {order} and {n}; expected one order")
    if own_hermitian != hermitian:
        hermitian = True
        x, y = (_hermitian_vector(as_complex(F)) for F in (A, B))
    return curved(ConvexAtom(RelativeEntropy((n, n), hermitian), [x, y], text))


def trace_logm(X: Operand, C: ArrayLike) -> CurvedExpression:
    """Return ``tr C log X`` with a constant positive semidefinite ``C``; it is concave.

    Parameters
    ----------
    X : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian.
    C : array_like of shape (n, n)
        Symmetric or Hermitian, positive semidefinite.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `X` is not affine, not square, not symmetric or Hermitian, or contains no variable, or if `C` is
        not positive semidefinite or has another order.
    """
    x, n, hermitian = _matrix(X, "X of trace_logm")
    weight, _ = _constant_psd(C, "C of trace_logm", n, hermitian)
    return curved(ConvexAtom(TraceLog(weight, hermitian), [x], f"trace_logm({_name(X)}, C)", convex=False))


def quantum_cond_entr(X: Operand, dims: Sequence[int], sys: int = 0) -> CurvedExpression:
    """Return the conditional entropy ``S(X) - S(tr_sys X)`` of two parts, in nats; it is concave.

    Parameters
    ----------
    X : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian, of two parts: ``n = dims[0] dims[1]``.
    dims : sequence of two int
        The orders of the parts.
    sys : int
        The part that is traced out, 0 or 1. The entropy is conditional on the other one.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `X` is not affine, not square, not symmetric or Hermitian, or contains no variable, or if `dims`
        or `sys` do not belong to it.
    """
    x, n, hermitian = _matrix(X, "X of quantum_cond_entr")
    orders = [int(d) for d in dims]
    if len(orders) != 2 or min(orders) < 1 or orders[0] * orders[1] != n:
        raise ValueError(f"dims is {tuple(dims)}; expected two orders with the product {n}, that of X")
    if sys not in (0, 1):
        raise ValueError(f"sys is {sys!r}; expected 0 or 1, the part that is traced out")
    kept = orders[1 - sys]
    parts = [
        np.kron(e[:, None], np.eye(kept)) if sys == 0 else np.kron(np.eye(kept), e[:, None])
        for e in np.eye(orders[sys])
    ]
    reduced = _congruences(x, n, hermitian, [part.T for part in parts])
    function = EntropySum((n, kept), (1.0, -1.0), hermitian)
    text = f"quantum_cond_entr({_name(X)}, {tuple(orders)}, {sys})"
    return curved(ConvexAtom(function, [x, reduced], text, convex=False))


def key_rate(
    rho: Operand, kraus: Sequence[ArrayLike] | None = None, pinching: Sequence[ArrayLike] | None = None
) -> CurvedExpression:
    """Return ``D(G(rho) || Z(G(rho)))``, the term of an asymptotic key rate, in nats; it is convex.

    ``G(rho) = sum_i K_i rho K_i*`` and ``Z(Y) = sum_j P_j Y P_j``. Minimized over the states that agree with
    the measurements, and less the cost of error correction, it is the key rate (Devetak and Winter 2005).
    A rate in bits is that number over ``log 2``.

    Parameters
    ----------
    rho : PSD, or affine expression of shape (n, n)
        The state, symmetric or Hermitian.
    kraus : sequence of array_like of shape (p, n), optional
        The ``K_i``; the identity by default.
    pinching : sequence of array_like of shape (p, p)
        Orthogonal projections ``P_j`` with the sum ``I``.

    Returns
    -------
    CurvedExpression
        A scalar, never negative.

    Raises
    ------
    TypeError, ValueError
        If `rho` is not affine, not square, not symmetric or Hermitian, or contains no variable, or if the
        operators have other shapes, or the `pinching` is not one of projections.

    References
    ----------
    Winick, Lütkenhaus, Coles (2018), Reliable numerical key rates for quantum key distribution, Quantum 2.
    """
    x, n, hermitian = _matrix(rho, "rho of key_rate")
    operators = [np.eye(n)] if kraus is None else kraus
    K: list[Any] = [complex_array(k, "an operator of kraus", 2) for k in operators]
    if not K or any(k.shape != (len(K[0]), n) for k in K):
        raise ValueError(f"kraus has shapes {[k.shape for k in K]}; expected matrices of one shape (p, {n})")
    if pinching is None:
        raise ValueError("pinching is missing; expected the projections P_j that measure the key")
    p = len(K[0])
    projections: list[Any] = [hermitian_matrix(P, "a projection of pinching", p) for P in pinching]
    _check_projections(projections, p)
    if not hermitian and any(np.abs(M.imag).max(initial=0.0) > 0 for M in [*K, *projections]):
        hermitian, x = True, _hermitian_vector(as_complex(rho))
    if not hermitian:
        K, projections = [k.real for k in K], [P.real for P in projections]
    whole = sum(k @ k.conj().T for k in K)
    every = [_range(whole), *(_range(P @ whole @ P) for P in projections)]
    ranges = [Q for Q in every if Q.shape[1]]
    arguments = [_congruences(x, n, hermitian, [Q.conj().T @ k for k in K]) for Q in ranges]
    weights = (1.0, *(-1.0,) * (len(ranges) - 1))
    function = EntropySum(tuple(Q.shape[1] for Q in ranges), weights, hermitian)
    return curved(ConvexAtom(function, arguments, f"key_rate({_name(rho)})", sign=1))


def _check_projections(projections: list[Any], p: int) -> None:
    if not projections:
        raise ValueError("pinching has no projection; expected orthogonal ones with the sum I")
    miss = max(float(np.abs(P @ P - P).max()) for P in projections)
    miss = max(miss, float(np.abs(sum(projections) - np.eye(p)).max()))
    if miss > 1e-10:
        raise ValueError(
            f"pinching misses P P = P or sum P = I by {miss:.1e}; expected projections with the sum I"
        )


def _range(S: Any) -> Any:
    """Return an orthonormal basis of the range of a psd matrix."""
    d, U = np.linalg.eigh(S)
    return U[:, d > _NULL * max(float(d[-1]), 0.0)]


def _congruences(x: Expression, n: int, hermitian: bool, factors: Sequence[Any]) -> Expression:
    """Return the vector of ``sum_i F_i X F_i*`` for the vector `x` of a matrix ``X`` of order `n`."""
    entries = _complex_entries(n, hermitian)
    sparse = [sp.csr_array(F) for F in factors]
    if sum(F.nnz**2 for F in sparse) <= _LARGEST_KRONECKER:
        i, j, scale, strict = upper_places(len(factors[0]))
        K = sp.csr_array(sum(sp.kron(F, F.conj(), format="csr") for F in sparse))
        upper = sp.diags_array(scale) @ (K[i * len(factors[0]) + j] @ entries)
        S = sp.csr_array(sp.vstack([upper.real, upper.imag[strict]]) if hermitian else upper.real)
    else:
        basis = hmat(np.eye(hvec_length(n, hermitian)), n, hermitian)
        S = sp.csr_array(hvec(sum(F @ basis @ F.conj().T for F in factors)).T)
    S.data[np.abs(S.data) <= 1e-15 * np.abs(S.data).max(initial=0.0)] = 0.0
    S.eliminate_zeros()
    return x.combined(S, (S.shape[0],), f"linear_map(A, {x.label})")


def _complex_entries(n: int, hermitian: bool) -> Any:
    """Return the entries of a matrix as a sparse map of its vector."""
    entries = entries_of(n, hermitian)
    if not hermitian:
        return entries
    real = np.ravel(2 * n * np.arange(n)[:, None] + np.arange(n))  # in the real form, of order 2 n
    return entries[real] + 1j * entries[2 * n * n + real]


def _matrix(F: Any, name: str) -> tuple[Expression, int, bool]:
    """Return the vector of a symmetric or Hermitian matrix, its order, and whether it is Hermitian."""
    if isinstance(F, CurvedExpression) and F.terms:
        raise TypeError(f"{name}, {F.label}, is {F.curvature}; expected an affine matrix")
    if isinstance(F, ComplexForms):
        if not is_hermitian(F):
            raise ValueError(
                f"{name}, {F.label}, has shape {F.shape} and is not Hermitian; expected (F + F.H) / 2"
            )
        return _hermitian_vector(F), F.shape[0], True
    e = symmetric_argument(F, name)
    e = e[:, :] if isinstance(e, PSD) else e
    return svec(e) if e.shape[0] > 1 else e.taken(np.arange(1), (1,), e.label), e.shape[0], False


def _hermitian_vector(F: ComplexForms) -> Expression:
    """Return the vector of a Hermitian matrix."""
    n = F.shape[0]
    i, j = np.triu_indices(n)
    real, *imaginary = hermitian_parts(F)
    parts = [real * np.where(i == j, 1.0, np.sqrt(2)), *(e * np.sqrt(2) for e in imaginary)]
    return replace(Expression.concatenated(parts), label=F.label)


def _constant(C: Any, name: str, n: int, hermitian: bool) -> Any:
    """Return a constant matrix, real for a symmetric argument."""
    M = hermitian_matrix(C, name, n)
    if hermitian:
        return M
    if np.abs(M.imag).max(initial=0.0) > 0:
        raise TypeError(
            f"{name} is complex and the other argument real; expected a Hermitian one, PSD(n, hermitian=True)"
        )
    return M.real


def _constant_psd(C: Any, name: str, n: int, hermitian: bool) -> tuple[Any, Array]:
    """Return a constant psd matrix, and its eigenvalues without negative round-off."""
    M = _constant(C, name, n, hermitian)
    d = np.linalg.eigvalsh(M)
    if d[0] < -1e-12 * np.abs(d).max():
        raise ValueError(f"{name} is not positive semidefinite: its smallest eigenvalue is {d[0]:.3g}")
    return M, d.clip(0)


def _name(F: Any) -> str:
    return str(getattr(F, "name", None) or getattr(F, "label", F)) if isinstance(F, Operand) else "C"


# --- functions of numbers


def entr(x: Operand) -> CurvedExpression:
    """Return ``-x log x`` of each element; it is concave, for ``x >= 0``.

    Parameters
    ----------
    x : expression
        Affine.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If `x` is not affine, or contains no variable.
    """
    e = curved_argument(x, "x of entr")
    text = f"entr({e.label})"
    return curved(ConvexAtom(NegativeEntropy(e.size), [e], text, e.shape, convex=False, positive=True))


def exp(x: Operand) -> CurvedExpression:
    """Return the exponential of each element; it is convex.

    Parameters
    ----------
    x : expression
        Affine or convex.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    e = curved_argument(x, "x of exp")
    return curved(ConvexAtom(Exponential(e.size), [e], f"exp({e.label})", e.shape, rises=True, sign=1))


def logistic(x: Operand) -> CurvedExpression:
    """Return ``log(1 + exp x)`` of each element; it is convex.

    Parameters
    ----------
    x : expression
        Affine or convex.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    e = curved_argument(x, "x of logistic")
    return curved(ConvexAtom(Logistic(e.size), [e], f"logistic({e.label})", e.shape, rises=True, sign=1))


def log_sum_exp(x: Operand, axis: int | None = None) -> CurvedExpression:
    """Return ``log(sum exp x)``; it is convex.

    Parameters
    ----------
    x : expression
        Affine or convex.
    axis : int, optional
        The axis along which it sums; all elements by default.

    Returns
    -------
    CurvedExpression
        A scalar, or of the shape of the other axes.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, it contains no variable, or has no such axis.
    """
    e = curved_argument(x, "x of log_sum_exp")
    numbers = np.arange(e.size).reshape(e.shape)
    if axis is not None and not -len(e.shape) <= axis < len(e.shape):
        raise ValueError(f"axis is {axis}; expected an axis of an expression of shape {e.shape}")
    places = numbers.reshape(1, -1) if axis is None else np.moveaxis(numbers, axis, -1)
    shape = () if axis is None else places.shape[:-1]
    group = places.shape[-1]
    if axis is not None and not np.array_equal(places.ravel(), np.arange(e.size)):
        S = sp.csr_array((np.ones(e.size), (np.arange(e.size), places.ravel())), (e.size, e.size))
        e = e.combined(S, (e.size,), e.label) if isinstance(e, Expression) else e.combined(S, (e.size,))
    function = LogSumExp(e.size // group, group)
    return curved(ConvexAtom(function, [e], f"log_sum_exp({e.label})", shape, rises=True))


def rel_entr(x: ExpressionLike, y: ExpressionLike) -> CurvedExpression:
    """Return ``x log(x / y)`` of each pair of elements; it is jointly convex, for ``x >= 0`` and ``y > 0``.

    Parameters
    ----------
    x, y : expression or array_like
        Affine; they broadcast as in NumPy. At least one contains a variable.

    Returns
    -------
    CurvedExpression
        Of the common shape.

    Raises
    ------
    TypeError, ValueError
        If an argument is not affine, neither contains a variable, or their shapes do not go together.
    """
    return _relative(x, y, "rel_entr")[0]


def kl_div(x: ExpressionLike, y: ExpressionLike) -> CurvedExpression:
    """Return ``x log(x / y) - x + y`` of each pair of elements; it is jointly convex and never negative.

    Parameters
    ----------
    x, y : expression or array_like
        Affine; they broadcast as in NumPy. At least one contains a variable.

    Returns
    -------
    CurvedExpression
        Of the common shape.

    Raises
    ------
    TypeError, ValueError
        If an argument is not affine, neither contains a variable, or their shapes do not go together.
    """
    relative, a, b = _relative(x, y, "kl_div")
    return relative - a + b


def _relative(x: Any, y: Any, name: str) -> tuple[CurvedExpression, Expression, Expression]:
    """Return ``x log(x / y)``, and both arguments in their common shape."""
    a: Any = as_curved(x, f"x of {name}").expression()
    b: Any = as_curved(y, f"y of {name}").expression()
    if a.is_constant and b.is_constant:
        raise ValueError(f"the arguments of {name} contain no variable; expected one at least")
    for e, side in ((a, "x"), (b, "y")):
        least = float(np.min(e.value)) if e.is_constant and not e.parameters and e.size else 0.0
        if least < 0:
            raise ValueError(f"{side} of {name} has an element {least:.3g}; expected none below 0")
    first, second = a.broadcast_with(b)
    text = f"{name}({first.label}, {second.label})"
    atom = ConvexAtom(NumbersRelativeEntropy(first.size), [first, second], text, first.shape, positive=True)
    return curved(atom), first, second
