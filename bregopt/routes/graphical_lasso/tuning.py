"""The numerical constants of sparse inverse covariance estimation."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.tuning import Tuning

__all__ = ["LassoTuning"]


@dataclass(frozen=True, kw_only=True)
class LassoTuning(Tuning):
    """Constants of descent and of splitting; ``benchmarks/logdet.py lasso`` measures them.

    Comparisons of values below are geometric means of times to a gap of 1e-4, at orders from 30 to 1,000.

    Parameters
    ----------
    steps : int
        Limit on steps, each with a certificate, where the option `max_iter` gives none.
    sweeps : int
        Limit on the times that the regressions of the start are taken, each time with the covariance of the
        last ones.
    sweep_steps : int
        Gradient steps of the regressions each time, at first: they double where the covariance changes more
        than before. With 1 the time is a tenth longer, with 3 a thirtieth.
    settled : float
        Change of the covariance, in units of its diagonal, with which the start is near enough. With 0.05 the
        time is a twentieth longer, with 0.01 a fiftieth.
    gradient_steps : int
        Proximal gradient steps on the model before a step on a face. With 3 the time is a twentieth longer.
    model_decrease : float
        Least ratio of the proximal residual at which the model is minimized enough. From 0.3 to 0.6 the time
        is the same. Where a larger one is enough for the goal, that one counts.
    model_products : int
        Products with the Hessian after which a model is left.
    rounds : int
        Limit on Newton steps before a certificate.
    step_factor : float
        Factor by which the estimate of the gap falls before a certificate, which costs up to a Newton step.
    idle_ratio : float
        Ratio of the estimate to that at the last progress that counts as progress.
    idle_rounds : int
        Newton steps without progress after which splitting takes over.
    value_noise : float
        Increase of the objective that counts as round-off, in units of the order times the machine precision.
    face_decrease : float
        Ratio of the residual at which conjugate gradients on a face end. With 0.15 the time is a fortieth
        longer.
    face_steps : int
        Limit on conjugate gradient steps on a face.
    changed_signs : float
        Fraction of a face's entries that may change their sign before conjugate gradients on it end. The
        result is projected on the face, so more of them spoil it.
    least_decrease : float
        Least change of the objective in the line searches, relative to that of their models (Armijo).
    shortest_step : float
        Fraction of a Newton step below which the method is stuck.
    single_order : int
        Order from which products are in single precision. With 100 orders from 50 take a sixth more time.
    single_gap : float
        Relative gap down to which all of the descent, and splitting, are in single precision.
    splitting_steps : int
        Iterations of splitting between two certificates.
    relaxation : float
        Of splitting. With 1.8 it takes about 0.6 of the iterations that it takes with 1.
    balance : float
        Ratio of the relative residuals of splitting from which the weight of its quadratic term changes.
    handover_factor : float
        Factor by which splitting then reduces the gap, before the descent takes over again. Its power grows
        by one each time.
    idle_steps : int
        Steps without any reduction of the gap after which the method has stalled.
    sparse_order : int
        Order from which products with matrices of a sparse face are sparse: below it dense ones are as fast.
    sparse_density : float
        Largest density of such a face.
    gathered_density : float
        Largest density of a face whose entries of ``W D W`` are computed one by one: at orders from 200 to
        1,000 they then take less time than the dense product.
    """

    steps: int = 200
    sweeps: int = 20
    sweep_steps: int = 2
    settled: float = 0.02
    gradient_steps: int = 4
    model_decrease: float = 0.4
    model_products: int = 24
    rounds: int = 30
    step_factor: float = 1e5
    idle_ratio: float = 0.5
    idle_rounds: int = 4
    value_noise: float = 8.0
    face_decrease: float = 0.3
    face_steps: int = 12
    changed_signs: float = 0.1
    least_decrease: float = 1e-4
    shortest_step: float = 1e-4
    single_order: int = 40
    single_gap: float = 1e-5
    splitting_steps: int = 3
    relaxation: float = 1.8
    balance: float = 2.0
    handover_factor: float = 30.0
    idle_steps: int = 30
    sparse_order: int = 80
    sparse_density: float = 0.25
    gathered_density: float = 0.12
