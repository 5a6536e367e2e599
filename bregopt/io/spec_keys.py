"""The keys and names of spec files, and the errors of one file, collected."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bregopt.errors import did_you_mean
from bregopt.io.text_functions import FUNCTIONS
from bregopt.routes.solve_options import RouteOptions

__all__ = ["KEYS", "NAME", "Errors", "check_file_options", "check_keys", "is_name", "typed"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The keys of each table of a spec file; the solver checks its own options.
KEYS: dict[str, tuple[str, ...]] = {
    "spec": (
        "title",
        "arrays",
        "digest",
        "data",
        "parameters",
        "variables",
        "expressions",
        "problem",
        "solve",
    ),
    "file": ("file", "key", "low_rank"),
    "factor": ("factor",),
    "parameter": ("shape", "value", "name", "lo", "hi"),
    "matrix": ("psd", "hermitian", "name"),
    "variable": ("shape", "nonneg", "lower", "upper", "symmetric", "name"),
    "problem": ("minimize", "maximize", "subject_to"),
}
# Options that a file may set: those of the routes of this package that are data, and of the backends of CVXPY
# tolerances and limits. Others could write files, as SCS's write_data_filename does.
_OPTIONS = frozenset(RouteOptions.__annotations__) - {"callback", "tuning"}
_BACKEND_OPTIONS = frozenset(
    [
        "abstol",
        "abstol_inacc",
        "alpha",
        "eps",
        "eps_abs",
        "eps_infeas",
        "eps_rel",
        "feastol",
        "feastol_inacc",
        "max_iter",
        "max_iters",
        "max_threads",
        "reltol",
        "reltol_inacc",
        "rho",
        "scale",
        "sigma",
        "threads",
        "time_limit",
        "time_limit_secs",
        "tol_feas",
        "tol_gap_abs",
        "tol_gap_rel",
        "tol_infeas_abs",
        "tol_infeas_rel",
        "tol_ktratio",
    ]
)
_KINDS = (FileNotFoundError, TypeError, ValueError)


def is_name(text: str) -> bool:
    """Whether a text can be a name in the expressions of a spec."""
    return bool(NAME.fullmatch(text)) and not keyword.iskeyword(text) and text not in FUNCTIONS


class Errors:
    """The errors of a spec file, each with its key; the reader goes on where one does not need another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[Exception] = []

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Collect an error of the block, with the key in front of it."""
        try:
            yield
        except _KINDS as error:
            kind = next(kind for kind in _KINDS if isinstance(error, kind))
            self._found.append(kind(f"{place}: {error}" if place else str(error)))

    def check(self) -> None:
        """Raise the errors so far: one as it is, several as a ValueError with a line for each."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise type(self._found[0])(f"{self._path}: {self._found[0]}")
        lines = [textwrap.indent(str(error), "  ") for error in self._found]
        raise ValueError("\n".join([f"{self._path}: {len(lines)} errors", *lines]))


def check_file_options(options: Mapping[str, Any]) -> None:
    """Refuse options of a solve that a file may not set."""
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(f"{name} is no option that a file may set; pass it to spec.solve({name}=...)")
    backend = typed(options.get("backend_options", {}), dict, "backend_options")
    for name, value in backend.items():
        if name not in _BACKEND_OPTIONS or not isinstance(value, int | float):
            raise ValueError(
                f"backend_options has {name} = {value!r}; a file may set tolerances and limits only: pass "
                "others to spec.solve(backend_options=...)"
            )


def typed(value: Any, kind: type, name: str) -> Any:
    """Return a value of the type that its key has, or raise a TypeError."""
    words = {str: "a string", bool: "true or false", dict: "a table", list: "a list of strings"}
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}; expected {words[kind]}")
    return value


def check_keys(table: dict[str, Any], kind: str, also: Iterable[str] = ()) -> None:
    """Refuse a key that a table of this kind does not have."""
    known = (*KEYS[kind], *also)
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")
