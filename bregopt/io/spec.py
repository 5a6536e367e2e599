"""Spec files: a whole problem, its data and how to solve it, in one TOML file.

The file ``spec.schema.json`` beside this module describes the keys (JSON Schema, draft 2020-12). Nothing in a
spec file is run as Python; see :func:`bregopt.io.evaluate.evaluate` for the syntax of expressions.
"""

from __future__ import annotations

import json
import keyword
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import finite_array
from bregopt.errors import did_you_mean
from bregopt.io.evaluate import FUNCTIONS, evaluate
from bregopt.io.files import read_text
from bregopt.io.matrices import Table, read_matrix
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Declared, Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.program.lowrank import LowRank
from bregopt.routes.options import check_options

__all__ = ["KEYS", "Spec", "load_spec", "self_contained", "spec_text"]

# The keys of each table of a spec file; the solver checks its own options.
KEYS: dict[str, tuple[str, ...]] = {
    "spec": ("title", "data", "variables", "problem", "solve"),
    "file": ("file", "key", "low_rank"),
    "factor": ("factor",),
    "matrix": ("psd",),
    "variable": ("shape", "nonneg", "lower", "upper"),
    "problem": ("minimize", "maximize", "subject_to"),
}
_SENSES = {"minimize": Minimize, "maximize": Maximize}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class Spec:
    """The content of a spec file.

    Parameters
    ----------
    title : str
    problem : Problem
    solver : str
        "auto", or the name of a route.
    options : dict
        Keywords for :meth:`bregopt.Problem.solve`.
    labeled : Table, optional
        The square matrix with labels among the data; None if there are several or none.
    """

    title: str
    problem: Problem
    solver: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    labeled: Table | None = None


def load_spec(path: str | Path) -> Spec:
    """Read a spec file.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` file. Files that it names must be in its folder or below.

    Returns
    -------
    Spec

    Raises
    ------
    FileNotFoundError
        If the spec, or a file that it names, does not exist.
    TypeError, ValueError
        If it is not TOML, keys are unknown or missing, or data or an expression is bad. Messages start with
        path and key.
    """
    path = Path(path)
    document = _document(path)
    with _named(str(path)):
        _check_keys(document, "spec")
        title = _typed(document.get("title", path.stem), str, "title")
        sections = {key: _typed(document.get(key, {}), dict, key) for key in KEYS["spec"][1:]}
        data, labeled = _data(sections["data"], path.parent)
        variables = _variables(sections["variables"])
        _check_distinct(data, variables)
        problem = _problem(sections["problem"], {**data, **variables})
        _check_used(variables, problem)
        with _named("solve"):
            solver, options = _solve(sections["solve"])
        return Spec(title, problem, solver, options, labeled[0] if len(labeled) == 1 else None)


def self_contained(path: str | Path) -> str:
    """Return the text of a spec with the data of all its files inside it.

    Parameters
    ----------
    path : str or Path
        A spec file that :func:`load_spec` reads.
    """
    path = Path(path)
    document = _document(path)
    data = {name: _contained(value, path.parent) for name, value in document.get("data", {}).items()}
    return spec_text({**document, "data": data} if data else document)


def _contained(value: Any, folder: Path) -> Any:
    if not isinstance(value, dict) or "factor" in value:
        return value
    content = _array(value, _from_file(value, folder))
    if isinstance(content, LowRank):
        return {"factor": content.factor.tolist()}
    return (content.toarray() if sp.issparse(content) else content).tolist()


def spec_text(document: dict[str, Any]) -> str:
    """Return a spec as TOML: plain values such as the title first, then the tables.

    Parameters
    ----------
    document : dict
        Plain values, lists and dicts, with the keys of a spec file.
    """
    lines = [f"{key} = {_toml(value)}" for key, value in document.items() if not isinstance(value, dict)]
    for key, table in document.items():
        if isinstance(table, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_toml(value)}" for name, value in table.items())]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """Return a value as TOML: JSON text is also TOML, except for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Put the file or key in front of error messages."""
    try:
        yield
    except (FileNotFoundError, TypeError, ValueError) as error:
        kinds = (FileNotFoundError, TypeError, ValueError)
        kind = next(kind for kind in kinds if isinstance(error, kind))
        raise kind(f"{place}: {error}") from error


def _document(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from error


def _data(table: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[Table]]:
    """Return the data by name, and the square matrices with labels among them."""
    values, labeled = {}, []
    for name, value in table.items():
        _check_name(name, "data")
        with _named(f"data.{name}"):
            if not isinstance(value, dict):
                values[name] = _inline(value)
            elif "factor" in value:
                values[name] = _factor(value)
            else:
                read = _from_file(value, folder)
                values[name] = _array(value, read)
                labeled += [read] if _labels_a_square(read) else []
    return values, labeled


def _labels_a_square(table: Table) -> bool:
    """Whether a table is a square matrix with the same labels for rows and columns."""
    labels = {found for found in (table.index, table.columns) if found is not None}
    return len(labels) == 1 and table.values.shape == 2 * (len(labels.pop()),)


def _inline(value: Any) -> Any:
    """Return a number or an array; integers stay integers, so that they can be indices."""
    finite = finite_array(value, "the value")
    given = np.asarray(value)
    if given.dtype.kind == "b":
        raise TypeError(f"the value is {value!r}; expected numbers")
    if finite.size == 0:
        raise ValueError("the value is empty; expected numbers")
    if finite.ndim == 0:
        return value
    return given if given.dtype.kind == "i" else finite


def _factor(table: dict[str, Any]) -> LowRank:
    _check_keys(table, "factor")
    return LowRank(finite_array(table["factor"], "factor", ndim=2))


def _from_file(table: dict[str, Any], folder: Path) -> Table:
    _check_keys(table, "file")
    if "file" not in table:
        raise ValueError('file is missing; expected { file = "name.csv" }')
    name = _typed(table["file"], str, "file")
    key = _typed(table["key"], str, "key") if "key" in table else None
    return read_matrix(_beside(name, folder), key)


def _array(entry: dict[str, Any], table: Table) -> Any:
    """Return the values read from a file, in the form that its entry in the spec states."""
    values = table.values
    if not _typed(entry.get("low_rank", False), bool, "low_rank"):
        return values
    return LowRank(values if sp.issparse(values) else values.reshape(len(values), -1))


def _beside(name: str, folder: Path) -> Path:
    """Return the path of a file that a spec names; links must not lead out of the spec's folder."""
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise ValueError(f"file is {name!r}, which cannot be followed: {error}") from error
    if not inside:
        raise ValueError(f"file is {name!r}, outside the spec's folder; expected one in it or below it")
    return path


def _variables(table: dict[str, Any]) -> dict[str, PSD | Variable]:
    found: dict[str, PSD | Variable] = {}
    for name, value in table.items():
        _check_name(name, "variables")
        with _named(f"variables.{name}"):
            found[name] = _variable(name, _typed(value, dict, "the value"))
    return found


def _variable(name: str, table: dict[str, Any]) -> PSD | Variable:
    if "psd" in table:
        _check_keys(table, "matrix")
        return PSD(table["psd"], name=name)
    _check_keys(table, "variable", also=KEYS["matrix"])
    shape = table.get("shape", ())
    nonneg = _typed(table.get("nonneg", False), bool, "nonneg")
    return Variable(
        tuple(shape) if isinstance(shape, list) else shape,
        name=name,
        nonneg=nonneg,
        lower=table.get("lower"),
        upper=table.get("upper"),
    )


def _problem(table: dict[str, Any], names: dict[str, Any]) -> Problem:
    with _named("problem"):
        _check_keys(table, "problem")
        given = [sense for sense in _SENSES if sense in table]
        if len(given) != 1:
            found = " and ".join(given) or "neither"
            raise ValueError(f"{found} given; expected either minimize or maximize")
        texts = _typed(table.get("subject_to", []), list, "subject_to")
        objective = _objective(given[0], table[given[0]], names)
        problem = Problem(objective, [_constraint(k, text, names) for k, text in enumerate(texts)])
        problem.program()  # refuses bounds that cross
        return problem


def _objective(sense: str, text: Any, names: dict[str, Any]) -> Minimize:
    with _named(sense):
        return _SENSES[sense](evaluate(_typed(text, str, "the value"), names))


def _constraint(k: int, text: Any, names: dict[str, Any]) -> Declared:
    with _named(f"subject_to[{k}]"):
        constraint = evaluate(_typed(text, str, "the value"), names)
        if not isinstance(constraint, Declared):
            raise TypeError(f"{text!r} is no constraint; expected a comparison (<=, >=, ==) or between(...)")
        return constraint


def _solve(table: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    options = dict(table)
    solver = _typed(options.pop("solver", "auto"), str, "solver")
    check_options(solver, options)
    return solver, options


def _typed(value: Any, kind: type, name: str) -> Any:
    words = {str: "a string", bool: "true or false", dict: "a table", list: "a list of strings"}
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}; expected {words[kind]}")
    return value


def _check_keys(table: dict[str, Any], kind: str, also: Iterable[str] = ()) -> None:
    known = (*KEYS[kind], *also)
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")


def _check_name(name: str, section: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ValueError(f"{section}: {name!r} is not a name; expected letters, digits and _, such as X0")
    if name in FUNCTIONS:
        raise ValueError(f"{section}: {name!r} is the name of a function; choose another")


def _check_distinct(data: dict[str, Any], variables: dict[str, Any]) -> None:
    for name in variables:
        if name in data:
            raise ValueError(f"variables: {name!r} is a name in data already; choose another")


def _check_used(variables: dict[str, PSD | Variable], problem: Problem) -> None:
    used = {X.name for X in problem.matrices} | {u.name for u in problem.variables}
    for name in variables:
        if name not in used:
            raise ValueError(f"variables: {name!r} occurs in no expression of the problem; remove or use it")
