"""Exceptions and warnings of bregopt.

Bad input raises :class:`ValueError` or :class:`TypeError` directly. The classes here are for a problem that
no route accepts, a route that failed, and an answer that is not accurate enough.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

# Names of options in other packages, and words of our reports, and our options.
_ELSEWHERE = {
    "condition": "max_condition",
    "condition_number": "max_condition",
    "eps": "tol",
    "eps_abs": "tol",
    "floor": "min_eigenvalue",
    "keep": "fixed",
    "kept": "fixed",
    "maxiter": "max_iter",
    "n_jobs": "executor",
    "random_state": "seed",
    "rank": "max_rank",
    "rtol": "tol",
    "sectors": "groups",
    "timeout": "time_limit",
    "tolerance": "tol",
    "unknown": "missing",
}


class UnsupportedProblemError(ValueError):
    """The chosen route, or every route, does not accept the problem; the message gives the reason."""


class InfeasibleRowError(ValueError):
    """One row alone contradicts ``X psd`` or the range space of ``X0``; the message names it.

    Attributes
    ----------
    row : int or None
        Its index in the program, if no other row is needed for the contradiction.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class SolverError(RuntimeError):
    """A route failed for an internal reason, such as an external solver or a factorization that failed."""


class ConvergenceWarning(UserWarning):
    """The best iterate is returned, but its certificate does not meet the tolerance."""


class DataWarning(UserWarning):
    """The data are accepted but suspicious; the message says what was done and what to do."""


class PluginWarning(UserWarning):
    """An entry point of the group ``bregopt.solvers`` could not be loaded and is skipped."""


_Parameters = ParamSpec("_Parameters")
_Returned = TypeVar("_Returned")

DEPRECATED: dict[str, tuple[str, str]] = {}  # old public names: the new one, and the version without the old


def deprecated(
    new: str, since: str
) -> Callable[[Callable[_Parameters, _Returned]], Callable[_Parameters, _Returned]]:
    """Return a decorator of a function whose name is an old one: each call warns, and names the new one.

    Two minor versions after `since` the name goes.

    Parameters
    ----------
    new : str
        What takes its place, such as ``"bregopt.learn.idealized_bounds"``.
    since : str
        The version that begins to warn, such as ``"0.2.0"``.
    """
    major, minor, _ = since.split(".")
    removal = f"{major}.{int(minor) + 2}.0"

    def decorate(function: Callable[_Parameters, _Returned]) -> Callable[_Parameters, _Returned]:
        old = f"{function.__module__.rpartition('.')[0]}.{function.__name__}"
        DEPRECATED[old] = new, removal

        @functools.wraps(function)
        def warned(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Returned:
            message = f"{old} is deprecated since {since}, and {removal} will not have it; use {new}"
            warn_caller(message, DeprecationWarning)
            return function(*args, **kwargs)

        return warned

    return decorate


def did_you_mean(name: str, known: Iterable[str], shown: int | None = None) -> str:
    """Return ``"; did you mean 'x'? Known: ..."`` for error messages about an unknown name.

    Parameters
    ----------
    name : str
    known : iterable of str
    shown : int, optional
        How many of the known names to list; by default all.
    """
    known = sorted(known)
    by_lower_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    here = _ELSEWHERE.get(name)
    meant = here if here in known else by_lower_case[close[0]] if close else None
    hint = "." if meant is None else f"; did you mean {meant!r}?"
    if not known:
        return f"{hint} None is known."
    more = "" if shown is None or len(known) <= shown else f" and {len(known) - shown} more"
    return f"{hint} Known: {', '.join(known[:shown])}{more}."


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the user's line: the innermost one outside this package, CVXPY, scikit-learn and joblib."""
    inside = (__name__.partition(".")[0], "cvxpy", "sklearn", "joblib")
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def _held_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; only the main thread can be interrupted."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is None:  # None: a handler that Python did not set
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def import_whole(module: str) -> Any:
    """Import a module; Ctrl-C is delayed, as a half-imported module would stay in this process."""
    if module in sys.modules:
        return importlib.import_module(module)  # waits for an import in another thread
    with _held_interrupt():
        return importlib.import_module(module)


def require(module: str, extra: str) -> Any:
    """Import an optional module, or raise an ImportError that names the extra to install."""
    try:
        return import_whole(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"{package} is needed here: pip install 'bregopt[{extra}]'") from error
