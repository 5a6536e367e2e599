"""The numerical constants of the reference."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.tuning import Tuning

__all__ = ["ReferenceTuning"]


@dataclass(frozen=True, kw_only=True)
class ReferenceTuning(Tuning):
    """Constants of the reference, besides those of every method.

    Parameters
    ----------
    clarabel_order : int
        Largest order of a matrix in a linear objective for which the default backend is Clarabel, where it
        takes about a second. The time of SCS grows more slowly, and it is less accurate. A divergence has its
        own limit.
    clarabel_tol_ratio : float
        Tolerance of Clarabel, relative to ours. Its last steps converge fast, so that a small tolerance costs
        little, and our certificate requires it.
    scs_tol_ratio : float
        Tolerance of SCS, relative to ours. Its steps converge slowly.
    least_clarabel_tol : float
        Least tolerance of Clarabel. It does not get below in reasonable time.
    least_scs_tol : float
        The same for SCS.
    scs_max_iter : int
        Limit on the iterations of SCS where the option `max_iter` gives none.
    proof_tol : float
        Tolerance of the problems whose solutions are Farkas vectors and rays. The driver checks these to the
        same.
    zero_part : float
        Part of a ray of size one, or multiplier relative to the largest, that counts as zero. It is of the
        size of `proof_tol`.
    zero_multiplier : float
        Multiplier that counts as zero, relative to the size of the divergence, if there are ordinary
        variables too.
    interior_eigenvalue : float
        Least eigenvalue of the answer if its divergence is infinite on the boundary of the cone, relative to
        the largest or one.
    import_seconds : float
        Estimated seconds of the first import of CVXPY, which is one call without a checkpoint.
    compile_seconds : float
        Estimated seconds of CVXPY's compilation of any problem, also one call.
    compile_seconds_entry : float
        Additional seconds for each row and each entry of a matrix.
    compile_seconds_cone : float
        Additional seconds for each cone of a divergence.
    """

    # backend.py
    clarabel_order: int = 50
    clarabel_tol_ratio: float = 1e-3
    scs_tol_ratio: float = 1e-2
    least_clarabel_tol: float = 1e-12
    least_scs_tol: float = 1e-9
    scs_max_iter: int = 100_000
    # route.py
    proof_tol: float = 1e-9
    zero_part: float = 1e-9
    zero_multiplier: float = 1e-8
    interior_eigenvalue: float = 1e-13
    import_seconds: float = 1.5
    compile_seconds: float = 0.05
    compile_seconds_entry: float = 1e-5
    compile_seconds_cone: float = 0.03
