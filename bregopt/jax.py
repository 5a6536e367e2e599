"""Problems as functions of JAX, in double precision.

Needs JAX: ``pip install 'bregopt[jax]'``, and ``jax.config.update("jax_enable_x64", True)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.errors import require

require("jax", "jax")

import jax  # noqa: E402
import jax.extend.core  # noqa: E402
from jax.interpreters import ad, batching, mlir  # noqa: E402

from bregopt.layers import CorrelationStack, ProblemFunction  # noqa: E402
from bregopt.modeling.problem import Problem  # noqa: E402
from bregopt.modeling.variables import (  # noqa: E402
    PSD,
    Parameter,
    Variable,
)

__all__ = ["Layer", "nearest_correlation"]


class Layer:
    """The answer of a problem as a differentiable function of its parameters.

    A call takes one array for each parameter and returns a tuple with one for each variable. Any array may
    have one more dimension, the first one: a batch, solved one by one, as by ``jax.vmap``. Forward and
    reverse mode, ``jit`` and ``vmap`` work; the solves run on the host.

    Parameters
    ----------
    problem : Problem
    parameters : sequence of Parameter
        Of the problem; others keep the values that they have when a solve runs. Of an ``X0`` or weights the
        symmetric part is used.
    variables : sequence of PSD or Variable
        The variables to return.
    solver : str or solver class
    **options
        Of :meth:`bregopt.Problem.solve`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of the problem; in calls, if an array has another shape or is not of double
        precision. Errors of solves, and of answers without a derivative, reach the caller as JAX reports
        errors of callbacks.

    Examples
    --------
    >>> import bregopt as bo, bregopt.jax, jax
    >>> jax.config.update("jax_enable_x64", True)
    >>> X, A = bo.PSD(2), bo.Parameter((2, 2))
    >>> problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
    >>> layer = bregopt.jax.Layer(problem, parameters=[A], variables=[X])
    >>> (answer,) = layer(jax.numpy.array([[1.0, 0.5], [0.5, 1.0]]))
    """

    def __init__(
        self,
        problem: Problem,
        parameters: Sequence[Parameter],
        variables: Sequence[PSD | Variable],
        solver: Any = "auto",
        **options: Any,
    ) -> None:
        self._function = ProblemFunction(problem, parameters, variables, solver, options)
        self._answer = _differentiable(self._function)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        """Return the variables at the values of the parameters."""
        function = self._function
        arrays = [jax.numpy.asarray(value) for value in values]
        batch = function.batch([array.shape for array in arrays])
        for array, p in zip(arrays, function.parameters, strict=True):
            _check_precision(array, p.name)
        if batch is None:
            return tuple(self._answer(*arrays))
        pairs = zip(arrays, function.parameters, strict=True)
        axes = [0 if array.ndim > len(p.shape) else None for array, p in pairs]
        return tuple(jax.vmap(self._answer, in_axes=axes)(*arrays))


def nearest_correlation(A: Any, divergence: str = "frobenius", **options: Any) -> Any:
    """Return the nearest correlation matrix, differentiable in `A`.

    Parameters
    ----------
    A : array of shape (n, n) or (B, n, n), of double precision
        Its symmetric part is used; positive definite for LogDet and von Neumann. A stack is solved and
        differentiated at once.
    divergence : {"frobenius", "logdet", "von_neumann"}
    **options
        Of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    array of the shape of `A`

    Raises
    ------
    TypeError, ValueError
        As for :class:`Layer`.

    Examples
    --------
    >>> import bregopt.jax, jax
    >>> jax.config.update("jax_enable_x64", True)
    >>> A = jax.numpy.array([[1.0, 0.9], [0.9, 1.0]])
    >>> gradient = jax.grad(lambda A: bregopt.jax.nearest_correlation(A)[0, 1])(A)
    """
    A = jax.numpy.asarray(A)
    _check_precision(A, "A")
    return _differentiable(CorrelationStack(A.shape, divergence, options))(A)[0]


def _check_precision(array: Any, name: str) -> None:
    if array.dtype != np.float64:
        raise TypeError(
            f"the array of {name} is {array.dtype}; expected float64 "
            '(jax.config.update("jax_enable_x64", True))'
        )


def _differentiable(function: ProblemFunction | CorrelationStack) -> Any:
    """Return the function with its derivative."""
    answers, state = _arrays(function.shapes), _array((function.state_size,))

    def solve(*values: Any) -> tuple[list[Any], Any]:
        return _on_host(lambda *v: function.value(*v), (answers, state), *values)

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def answer(*values: Any) -> list[Any]:
        return solve(*values)[0]

    @answer.defjvp  # type: ignore[untyped-decorator]
    def jvp(values: Any, tangents: Any) -> tuple[list[Any], Any]:
        found, at = solve(*values)
        return found, _derivative.bind(*values, at, *tangents, function=function, backward=False)

    return answer


# The derivative is a primitive, as JAX then knows its transpose and its batches. It is bound to the values of
# the parameters and to the state, in which it is not linear, and to the tangents or cotangents.
_derivative = jax.extend.core.Primitive("bregopt_derivative")
_derivative.multiple_results = True


def _product(*arguments: Any, function: ProblemFunction | CorrelationStack, backward: bool) -> list[Any]:
    """Return the product with the derivative or, `backward`, with its transpose."""
    count = len(function.parameters)
    method = function.vjp if backward else function.jvp

    def product(*given: Any) -> list[Any]:
        return method(given[:count], given[count], given[count + 1 :])

    return _on_host(product, _arrays(_result(function, backward)), *arguments)


def _result(function: ProblemFunction | CorrelationStack, backward: bool) -> list[tuple[int, ...]]:
    return [p.shape for p in function.parameters] if backward else function.shapes


def _abstract(*_: Any, function: ProblemFunction | CorrelationStack, backward: bool) -> list[Any]:
    return [jax.core.ShapedArray(shape, np.float64) for shape in _result(function, backward)]


def _transpose(
    given: Any, *arguments: Any, function: ProblemFunction | CorrelationStack, backward: bool
) -> list[Any]:
    fixed = arguments[: len(function.parameters) + 1]
    given = [ad.instantiate_zeros(own) for own in given]
    found = _derivative.bind(*fixed, *given, function=function, backward=not backward)
    return [None] * len(fixed) + found


def _batch(arguments: Any, axes: Any, **options: Any) -> tuple[Any, list[int]]:
    """Return the products of a batch, one after the other."""
    own = [k for k, axis in enumerate(axes) if axis is not None]
    moved = [jax.numpy.moveaxis(arguments[k], axes[k], 0) for k in own]

    def one(parts: Any) -> Any:
        given = list(arguments)
        for k, part in zip(own, parts, strict=True):
            given[k] = part
        return _derivative.bind(*given, **options)

    found = jax.lax.map(one, moved)
    return found, [0] * len(found)


_derivative.def_impl(_product)
_derivative.def_abstract_eval(_abstract)
mlir.register_lowering(_derivative, mlir.lower_fun(_product, multiple_results=True))
ad.primitive_transposes[_derivative] = _transpose
batching.primitive_batchers[_derivative] = _batch


def _on_host(function: Any, shapes: Any, *arguments: Any) -> Any:
    """Call a function of NumPy arrays, one element of a batch after the other."""

    def call(*given: Any) -> Any:
        return function(*jax.tree.map(np.asarray, given))

    return jax.pure_callback(call, shapes, *arguments, vmap_method="sequential")


def _arrays(shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    return [_array(shape) for shape in shapes]


def _array(shape: tuple[int, ...]) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float64)
