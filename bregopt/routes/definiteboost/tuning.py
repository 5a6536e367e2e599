"""The numerical constants of DefiniteBoost."""

from __future__ import annotations

from bregopt.records import dataclass
from bregopt.routes.tuning import Tuning

__all__ = ["DefiniteBoostTuning"]


@dataclass(frozen=True, kw_only=True)
class DefiniteBoostTuning(Tuning):
    """Constants of DefiniteBoost, besides those of every method.

    Parameters
    ----------
    default_max_iter : int
        Limit on the number of iterations where the option `max_iter` gives none.
    certified_steps : int
        Number of iterations up to which each is certified. Later ones are certified at intervals of their
        number divided by this, so that certificates remain a small part of the time.
    least_margin_tol : float
        Least tolerance of a search over the margin. Each further digit takes 100 times as many steps.
    step_round_off : float
        Distance of a row's value from its bound, relative to the row's range and the trace, at which an exact
        step ends: round-off.
    row_round_off : float
        Round-off of the norm and of the eigenvalues of a row, relative to these. It decides whether a
        row fixes the trace, and whether it holds only on the boundary of the cone.
    tied_rows : float
        Difference of the errors of two rows, relative to the larger one, below which they count as equal. A
        step takes the first of equal rows. Round-off, which depends on the processor, would take another one.
    """

    # nearness.py, search.py and route.py
    default_max_iter: int = 20_000
    certified_steps: int = 20
    least_margin_tol: float = 1e-2
    # boost.py
    step_round_off: float = 1e-15
    row_round_off: float = 1e-12
    tied_rows: float = 1e-9
