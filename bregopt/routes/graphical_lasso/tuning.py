"""The numerical constants of sparse inverse covariance estimation."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.tuning import Tuning

__all__ = ["LassoTuning"]


@dataclass(frozen=True, kw_only=True)
class LassoTuning(Tuning):
    """Constants of splitting and of the proximal Newton method; ``benchmarks/logdet_lasso.py`` measures them.

    Parameters
    ----------
    steps : int
        Limit on Newton steps where the option `max_iter` gives none.
    model_decrease : float
        Ratio of the proximal residual of the quadratic model to its first one at which a step is taken.
    model_products : int
        Products ``W D W`` for one model, after which a step is taken. With half of them dense real matrices
        take five times the steps.
    face_decrease : float
        Ratio of the residual at which conjugate gradients on a face end.
    face_steps : int
        Limit on conjugate gradient steps on a face.
    changed_signs : float
        Fraction of a face's entries that may change their sign before conjugate gradients on it end. The
        result is projected on the face, so more of them spoil it.
    least_decrease : float
        Least change of the objective in the line search, relative to that of the model (Armijo).
    shortest_step : float
        Step length below which the method has stalled.
    single_order : int
        Order from which products are in single precision.
    rough_gap : float
        Relative gap at which Newton's method takes over from splitting.
    single_gap : float
        Relative gap to which splitting leads in single precision.
    splitting_steps : int
        Iterations of splitting between two certificates.
    relaxation : float
        Of splitting. With 1.8 it takes about 0.6 of the iterations that it takes with 1.
    balance : float
        Ratio of the relative residuals of splitting from which the weight of its quadratic term changes.
    newton_ratio : float
        Ratio of the gap to that before a Newton step that counts as slow.
    slow_steps : int
        Slow Newton steps in a row before splitting takes over.
    handover_factor : float
        Factor by which splitting then reduces the gap, before Newton's method takes over again.
    idle_steps : int
        Steps without any reduction of the gap after which the method has stalled.
    sparse_order : int
        Order from which products with sparse matrices are sparse.
    sparse_density : float
        Largest density of such a matrix.
    gathered_density : float
        Largest density of a face whose entries of ``W D W`` are computed one by one.
    """

    steps: int = 200
    model_decrease: float = 0.1
    model_products: int = 40
    face_decrease: float = 0.1
    face_steps: int = 12
    changed_signs: float = 0.1
    least_decrease: float = 1e-4
    shortest_step: float = 1e-8
    single_order: int = 150
    rough_gap: float = 3e-4
    single_gap: float = 1e-4
    splitting_steps: int = 3
    relaxation: float = 1.8
    balance: float = 2.0
    newton_ratio: float = 0.7
    slow_steps: int = 2
    handover_factor: float = 30.0
    idle_steps: int = 30
    sparse_order: int = 100
    sparse_density: float = 0.25
    gathered_density: float = 0.04
