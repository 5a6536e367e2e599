"""Problems as layers of PyTorch, in double precision.

Needs PyTorch: ``pip install 'bregopt[torch]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import require

require("torch", "torch")

import torch  # noqa: E402

from bregopt.layers import CorrelationStack, ProblemFunction  # noqa: E402
from bregopt.modeling.problem import Problem  # noqa: E402
from bregopt.modeling.variables import (  # noqa: E402
    PSD,
    Parameter,
    Variable,
)

__all__ = ["Layer", "nearest_correlation"]


class Layer(torch.nn.Module):
    """The answer of a problem as a differentiable function of its parameters.

    A call takes one tensor for each parameter and returns a tuple with one for each variable. Any tensor may
    have one more dimension, the first one: a batch, solved one by one. The others are then the same for all.

    Parameters
    ----------
    problem : Problem
    parameters : sequence of Parameter
        Of the problem; others keep their values. Of an ``X0`` or weights the symmetric part is used.
    variables : sequence of PSD or Variable
        The variables to return.
    solver : str or solver class
    **options
        Of :meth:`bregopt.Problem.solve`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of the problem; in calls, if a tensor has another shape or is not of double
        precision; in ``backward``, if the answer has no derivative.
    SolverError
        In calls, if the problem has no optimal answer.

    Examples
    --------
    >>> import bregopt as bo, bregopt.torch, torch
    >>> X, A = bo.PSD(2), bo.Parameter((2, 2))
    >>> problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
    >>> layer = bregopt.torch.Layer(problem, parameters=[A], variables=[X])
    >>> (answer,) = layer(torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64))
    """

    def __init__(
        self,
        problem: Problem,
        parameters: Sequence[Parameter],
        variables: Sequence[PSD | Variable],
        solver: Any = "auto",
        **options: Any,
    ) -> None:
        super().__init__()
        self._function = ProblemFunction(problem, parameters, variables, solver, options)

    def forward(self, *values: Any) -> tuple[Any, ...]:
        """Return the variables at the values of the parameters."""
        function = self._function
        batch = function.batch([tuple(value.shape) for value in values])
        for value, p in zip(values, function.parameters, strict=True):
            if value.dtype != torch.float64:
                raise TypeError(f"the tensor of {p.name} is {value.dtype}; expected torch.float64")
        if batch is None:
            return tuple(_Answer.apply(function, *values))
        pairs = list(zip(values, function.parameters, strict=True))
        answers = [
            _Answer.apply(function, *(v[k] if v.ndim > len(p.shape) else v for v, p in pairs))
            for k in range(batch)
        ]
        return tuple(torch.stack(own) for own in zip(*answers, strict=True))


class _Answer(torch.autograd.Function):
    """One answer; its backward pass uses the state that is saved with it."""

    @staticmethod
    def forward(ctx: Any, function: ProblemFunction | CorrelationStack, *values: Any) -> tuple[Any, ...]:
        found, state = function.value(*(_array(value) for value in values))
        ctx.function, ctx.state = function, state
        ctx.save_for_backward(*values)
        return tuple(torch.from_numpy(np.array(own)).to(values[0].device) for own in found)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        values = ctx.saved_tensors
        given = [_array(cotangent) for cotangent in cotangents]
        gradients = ctx.function.vjp([_array(value) for value in values], ctx.state, given)
        return None, *(torch.from_numpy(own).to(values[0].device) for own in gradients)


def nearest_correlation(A: Any, divergence: str = "frobenius", **options: Any) -> Any:
    """Return the nearest correlation matrix, differentiable in `A`.

    Parameters
    ----------
    A : tensor of shape (n, n) or (B, n, n), of double precision
        Its symmetric part is used; positive definite for LogDet and von Neumann. A stack is solved and
        differentiated at once.
    divergence : {"frobenius", "logdet", "von_neumann"}
    **options
        Of :meth:`bregopt.Problem.solve`.

    Returns
    -------
    tensor of the shape of `A`

    Raises
    ------
    TypeError, ValueError, SolverError
        As for :class:`Layer`.

    Examples
    --------
    >>> import bregopt.torch, torch
    >>> A = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64, requires_grad=True)
    >>> bregopt.torch.nearest_correlation(A)[0, 1].backward()
    """
    if not isinstance(A, torch.Tensor):
        raise TypeError(f"A is {type(A).__name__}; expected a torch.Tensor")
    if A.dtype != torch.float64:
        raise TypeError(f"the tensor of A is {A.dtype}; expected torch.float64")
    (found,) = _Answer.apply(CorrelationStack(tuple(A.shape), divergence, options), A)
    return found


def _array(tensor: Any) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
