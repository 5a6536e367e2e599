"""Divergences of matrix variables, as terms of objectives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, hermitian_matrix, positive_number, symmetric_matrix
from bregopt.divergences import BUILT_IN, Divergence, divergence_named
from bregopt.linalg import is_definite
from bregopt.modeling.atoms import trace
from bregopt.modeling.complex_expressions import ComplexForms, real
from bregopt.modeling.complex_variables import ComplexOperand, HermitianPSD, embedded
from bregopt.modeling.convex.atom import leaves
from bregopt.modeling.convex.eigenvalues import DivergenceAtom
from bregopt.modeling.convex.expression import CurvedExpression, curved
from bregopt.modeling.expressions import Operand
from bregopt.modeling.variables import PSD, Parameter
from bregopt.presolve.coordinates import RANK_TOL, with_complement
from bregopt.program.rows.base import LowRank, Matrix

CenterLike = ArrayLike | LowRank | Operand  # a Parameter or an expression of parameters is an Operand


def logdet_div(
    X: PSD, X0: CenterLike, complement: float | None = None, rank_tol: float = RANK_TOL
) -> CurvedExpression:
    """Return the LogDet divergence ``tr(X inv(X0)) - logdet(X inv(X0)) - n``.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric (Hermitian) positive definite, or LowRank
        With a :class:`~bregopt.LowRank` the range of ``X`` is restricted to that of ``X0``.
    complement : float, above 0, optional
        Use the dense matrix ``X0 + complement N`` instead, with ``N`` the projection on the null space of
        ``X0``. Then ``X0`` may be singular, and ``X`` may leave the range of ``X0`` at a cost.
    rank_tol : float
        With `complement`, eigenvalues below this fraction of the largest count as zero.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` is not symmetric, not of the order of ``X``, or dense and not positive definite, or if
        `complement` is not above 0.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), eq. 2 and Definition 4; §6.5 for `complement`.
    """
    return _divergence("logdet", X, X0, complement, rank_tol)


def von_neumann_div(
    X: Operand | ArrayLike, X0: CenterLike, complement: float | None = None, rank_tol: float = RANK_TOL
) -> CurvedExpression:
    """Return the von Neumann divergence ``tr(X log X - X log X0 - X + X0)``; it is jointly convex.

    Parameters
    ----------
    X : PSD, or affine expression of shape (n, n)
        With an expression, or variables in `X0`, it is ``quantum_rel_entr(X, X0) - tr X + tr X0``, and
        either may be constant, as there.
    X0 : array_like of shape (n, n), symmetric (Hermitian) positive definite, LowRank or affine expression
    complement, rank_tol : float
        As for :func:`logdet_div`, where `X` is a variable and `X0` has none.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` is not symmetric, not of the order of ``X``, or dense and not positive definite, or if
        `complement` is not above 0, or stated beside expressions.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), eq. 1 and Definition 4.
    """
    of_variable = isinstance(X, PSD | HermitianPSD) or not isinstance(X, Operand)
    if not of_variable or _has_variables(X0):
        if complement is not None or isinstance(X0, LowRank):
            raise TypeError(
                f"X of von_neumann_div is {type(X).__name__} and X0 {type(X0).__name__}; expected a bo.PSD "
                "variable and numbers where complement is stated or X0 is LowRank"
            )
        from bregopt.modeling.convex.entropies import quantum_rel_entr  # other divergences need none of it

        return quantum_rel_entr(X, X0) - _trace_of(X) + _trace_of(X0)
    return _divergence("von_neumann", X, X0, complement, rank_tol)


def _has_variables(e: Any) -> bool:
    if isinstance(e, HermitianPSD):
        return True
    parts = e.parts if isinstance(e, ComplexOperand) else real(e) if isinstance(e, ComplexForms) else e
    return isinstance(parts, Operand) and any(not isinstance(own, Parameter) for own in leaves(parts))


def _trace_of(e: Any) -> Any:
    return real(trace(e)) if isinstance(e, Operand) else float(np.trace(np.asarray(e)).real)


def frobenius_div(X: PSD, X0: CenterLike, weights: ArrayLike | None = None) -> CurvedExpression:
    """Return the squared Frobenius distance, the sum of squares of ``X - X0``, without a factor 1/2.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric, or Hermitian for such a variable
        It need not be positive semidefinite.
    weights : array_like of shape (n, n), symmetric, from 0, optional
        ``H`` for the weighted distance, the sum of squares of ``H o (X - X0)``. A weight of 0 marks an
        unknown entry: the one of ``X0`` is ignored.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` or `weights` is not symmetric or not of the order of ``X``, a weight is
        below 0, or all of them are 0.
    """
    parameters = {} if weights is None else {"weights": weights}
    return _divergence("frobenius", X, X0, None, RANK_TOL, parameters)


def bregman_div(
    X: PSD, X0: CenterLike, divergence: str | type[Divergence], **parameters: object
) -> CurvedExpression:
    """Return a registered divergence, such as one of your own.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric, or LowRank
        The divergence decides whether it must be positive definite or may be low-rank.
    divergence : str or class
        The name of a divergence, or a class given to
        :func:`bregopt.divergences.register_divergence`.
    **parameters
        Parameters of the divergence: `weights` of "frobenius"; `condition` and `floor`, an upper bound on the
        condition number and a lower one on the eigenvalues, of the three built-in divergences.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If the divergence is unknown, ``X0`` is not symmetric or not of the order of ``X``, or the divergence
        does not accept ``X0`` or a parameter.
    """
    return _divergence(divergence_named(divergence).name, X, X0, None, RANK_TOL, parameters)


def _divergence(
    name: str,
    X: Any,
    X0: Any,
    complement: float | None,
    rank_tol: float,
    parameters: Mapping[str, Any] | None = None,
) -> CurvedExpression:
    atom, kind = f"{name}_div", divergence_named(name)
    copies = 1
    if any(isinstance(value, Operand) for value in (X0, *(parameters or {}).values())):
        return _divergence_at_parameters(name, X, X0, complement, rank_tol, parameters or {})
    if isinstance(X, HermitianPSD):
        X0, parameters = _in_real_form(X, X0, atom, parameters)
        X, copies = X.block, 2
    X = _variable(X, atom)
    start: Matrix
    if isinstance(X0, LowRank) and not kind.keeps_range:
        raise TypeError(f"X0 of {atom} is LowRank, whose range it does not keep: pass X0.dense()")
    if isinstance(X0, LowRank):
        if X0.shape[0] != X.n:
            raise ValueError(f"X0 of {atom} is {X0.shape[0]} x {X0.shape[0]}; expected {X.n} x {X.n}")
        start = X0
    else:
        start = symmetric_matrix(X0, f"X0 of {atom}", X.n)
    if complement is not None:
        eps = positive_number(complement, f"complement of {atom}")
        start = with_complement(start, eps, positive_number(rank_tol, f"rank_tol of {atom}"))
    if kind.definite_start and not isinstance(start, LowRank) and not is_definite(start):
        eigenvalues = np.linalg.eigvalsh(start)
        smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
        if smallest < -1e-10 * abs(largest):
            advice = "lift its eigenvalues first, for instance with bo.nearest_psd, or use bo.frobenius_div"
        else:
            advice = "pass bo.LowRank(factor) to work on its range space, or complement=eps to leave it"
        raise ValueError(
            f"X0 of {atom} is not positive definite: its smallest eigenvalue is {smallest:.3g} "
            f"(largest {largest:.3g}); {advice}"
        )
    parameters = parameters or {}
    if (parameters or kind not in BUILT_IN) and not isinstance(start, LowRank):
        start, parameters = kind.variant(**parameters).checked(start, **parameters)
    return curved(DivergenceAtom(name, X, start, parameters, copies=copies))


def _in_real_form(
    X: HermitianPSD, X0: Any, atom: str, parameters: Mapping[str, Any] | None
) -> tuple[Array, Mapping[str, Any] | None]:
    """Return ``X0`` and the parameters of a divergence for the real form of a Hermitian variable."""
    if isinstance(X0, LowRank):
        raise TypeError(
            f"X0 of {atom} is LowRank, but {X.name} is Hermitian; pass X0.dense(), with complement=eps where "
            "it is singular"
        )
    if parameters and set(parameters) != {"weights"}:
        raise TypeError(f"{atom} has the parameters {sorted(parameters)}; a Hermitian {X.name} takes none")
    doubled = {
        name: np.tile(finite_array(value, name, 2), (2, 2)) for name, value in (parameters or {}).items()
    }
    return embedded(hermitian_matrix(X0, f"X0 of {atom}", X.n)), doubled


def _divergence_at_parameters(
    name: str, X: Any, X0: Any, complement: float | None, rank_tol: float, parameters: Mapping[str, Any]
) -> CurvedExpression:
    """Return a divergence whose ``X0`` or parameters are a Parameter; their values are checked later."""
    is_hermitian = isinstance(X, HermitianPSD)
    block = _variable(X.block if is_hermitian else X, f"{name}_div")
    for argument, value in (("X0", X0), *parameters.items()):
        if not isinstance(value, Operand):
            continue
        own = is_hermitian and argument == "X0" and isinstance(value, ComplexOperand) and value.is_hermitian
        parts = value.parts if own and isinstance(value, ComplexOperand) else value
        if not isinstance(parts, Parameter) or parts.shape != X.shape:
            found = f"has shape {parts.shape}" if isinstance(parts, Parameter) else f"is {value!r}"
            kind = ", also with hermitian=True" if is_hermitian and argument == "X0" else ""
            raise TypeError(
                f"{argument} of {name}_div {found}; expected numbers or a bo.Parameter of shape "
                f"{X.shape}{kind}"
            )
        if is_hermitian and argument != "X0":
            raise TypeError(
                f"{argument} of {name}_div is a parameter, and {X.name} Hermitian; expected numbers"
            )
    current = partial(_current_divergence, name, X, X0, complement, rank_tol, parameters)
    options = {} if complement is None else {"complement": complement, "rank_tol": rank_tol}
    own_X0 = X0.parts if isinstance(X0, ComplexOperand) else X0
    copies = 2 if is_hermitian else 1
    return curved(DivergenceAtom(name, block, own_X0, parameters, current, copies, options=options))


def _current_divergence(
    name: str, X: Any, X0: Any, complement: float | None, rank_tol: float, parameters: Mapping[str, Any]
) -> CurvedExpression:
    values = {
        key: value.value if isinstance(value, Parameter) else value for key, value in parameters.items()
    }
    start = X0.value if isinstance(X0, Parameter | ComplexOperand) else X0
    return _divergence(name, X, start, complement, rank_tol, values)


def _variable(X: Any, atom: str) -> PSD:
    if not isinstance(X, PSD):
        raise TypeError(f"X of {atom} is {type(X).__name__}; expected a bo.PSD variable")
    return X
