"""Spec files: a whole problem, its data and how to solve it, in one TOML file.

The file ``spec.schema.json`` beside this module describes the keys (JSON Schema, draft 2020-12). Nothing in a
spec file is run as Python; see :func:`bregopt.io.evaluate.evaluate` for the syntax of expressions.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.errors import did_you_mean
from bregopt.files import path_of, read_text
from bregopt.io.evaluate import evaluate
from bregopt.io.matrices import Table
from bregopt.io.plain_data import PlainReader
from bregopt.io.spec_data import arrays_of, entry_of, inline, labels_a_square
from bregopt.io.spec_keys import KEYS, NAME, Errors, check_file_options, check_keys, is_name, typed
from bregopt.io.text_functions import FUNCTIONS
from bregopt.memory import check_memory
from bregopt.modeling.hermitian import HermitianPSD
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Declared, Problem
from bregopt.modeling.psd import PSD
from bregopt.modeling.variables import Parameter, Variable
from bregopt.routes.options import check_options
from bregopt.routes.solution import Solution

__all__ = ["KEYS", "Spec", "load_spec"]

_SENSES = {"minimize": Minimize, "maximize": Maximize}
_SECTIONS = ("data", "parameters", "variables", "expressions", "problem", "solve")
_OPERANDS = (PSD, HermitianPSD, Variable, Parameter)
_FAILED = object()  # the value of a name whose own entry has an error


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

    def solve(self, **options: Any) -> Solution:
        """Solve the problem as the file says; the options given here replace those of the file.

        Raises and warns as :meth:`bregopt.Problem.solve`.
        """
        return self.problem.solve(**{"solver": self.solver, **self.options, **options})

    def explain(self, **options: Any) -> None:
        """Print what :meth:`solve` would run with the same options, and why.

        Raises as :meth:`bregopt.Problem.explain`.
        """
        self.problem.explain(**{"solver": self.solver, **self.options, **options})


def load_spec(path: str | Path, parameters: Mapping[str, ArrayLike] | None = None) -> Spec:
    """Read a spec file, written by hand or by :meth:`bregopt.Problem.to_spec`.

    Parameters
    ----------
    path : str or Path
        A ``.toml`` file; ``"-"`` for the standard input. Files that it names must be in its folder or below.
    parameters : mapping from str, optional
        Values of parameters, in place of those of the file.

    Returns
    -------
    Spec
        Its `problem` is the declared :class:`~bregopt.Problem`; its `solve()` solves it as the file says.

    Raises
    ------
    FileNotFoundError
        If the spec, or a file that it names, does not exist.
    TypeError, ValueError
        If it is not TOML, keys are unknown or missing, data or an expression is bad, or a name is not used.
        The message starts with the path and lists all errors, each with its key.
    """
    path = path_of(path)
    return _Reader(path, _document(path), dict(parameters or {})).spec()


def _document(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from error


class _Reader:
    """Reads the tables of a spec in their order, and collects errors."""

    def __init__(self, path: Path, document: dict[str, Any], values: dict[str, Any]) -> None:
        self._path, self._document, self._values = path, document, values
        self._errors = Errors(path)
        self._names: dict[str, Any] = {}  # all that expressions may name
        self._arrays: dict[str, Any] = {}
        self._labeled: list[Table] = []

    def spec(self) -> Spec:
        """Return the content of the file, or raise all of its errors."""
        at = self._errors.at
        with at(""):
            check_keys(self._document, "spec")
        title = self._path.stem
        with at(""):
            title = typed(self._document.get("title", title), str, "title")
        sections = {name: self._section(name) for name in _SECTIONS}
        if "arrays" in self._document:
            with at("arrays"):
                self._arrays = arrays_of(
                    self._document["arrays"], self._document.get("digest"), self._path.parent
                )
                self._names |= {name: part for name, part in self._arrays.items() if is_name(name)}
        self._read("data", sections["data"], self._datum)
        self._read("parameters", sections["parameters"], self._parameter)
        with at("parameters"):
            self._check_values(sections["parameters"])
        self._read("variables", sections["variables"], self._variable)
        declared = {name: u for name, u in self._names.items() if isinstance(u, _OPERANDS)}
        operands = {name: getattr(u, "block", u) for name, u in declared.items()}
        plain = PlainReader(operands, self._arrays)
        self._read("expressions", sections["expressions"], lambda _, table: plain.item(_table(table)))
        problem = self._problem(sections["problem"])
        self._check_used(sections)
        solver, options = "auto", dict(sections["solve"])
        with at("solve"):
            solver = typed(options.pop("solver", solver), str, "solver")
            check_options(solver, options)
            check_file_options(options)
        self._errors.check()
        assert problem is not None
        return Spec(title, problem, solver, options, self._labeled[0] if len(self._labeled) == 1 else None)

    def _section(self, name: str) -> dict[str, Any]:
        with self._errors.at(""):
            found: dict[str, Any] = typed(self._document.get(name, {}), dict, name)
            return found
        return {}

    def _read(self, section: str, table: dict[str, Any], read: Any) -> None:
        """Read the entries of a table; one with an error fails, and what names it is not read."""
        for name, value in table.items():
            fails = section != "data" and self._fails(value)
            with self._errors.at(section):
                _check_name(name)
                if name in self._names:
                    raise ValueError(f"{name!r} is a name in {self._home(name)} already; choose another")
                self._names[name] = _FAILED
                if not fails:
                    with self._errors.at(f"{section}.{name}"):
                        self._names[name] = read(name, value)

    def _home(self, name: str) -> str:
        """Return the table that a name is in."""
        homes = (section for section in _SECTIONS if name in self._document.get(section, {}))
        return next(homes, "arrays")

    def _fails(self, value: Any) -> bool:
        """Whether a value names an entry that has an error."""
        return any(self._names.get(name) is _FAILED for name in _mentioned(value))

    def _datum(self, name: str, value: Any) -> Any:
        found, table = entry_of(value, self._path.parent)
        self._labeled += [table] if table is not None and labels_a_square(table) else []
        return found

    def _parameter(self, name: str, value: Any) -> Parameter:
        table = value if isinstance(value, dict) else {"value": value}
        check_keys(table, "parameter")
        given = self._values.get(name, table.get("value"))
        number = None if given is None else np.asarray(self._number(given), dtype=float)
        shape = _shape(table.get("shape", () if number is None else number.shape))
        if number is not None and number.ndim == 0 and shape:
            number = np.full(shape, float(number))
        ends = {end: np.broadcast_to(self._number(table[end]), shape) for end in ("lo", "hi") if end in table}
        return Parameter(shape, value=number, name=typed(table.get("name", name), str, "name"), **ends)

    def _number(self, value: Any) -> Any:
        """Return numbers that an entry holds, or names."""
        if not isinstance(value, str):
            return inline(value)
        if value not in self._names:
            raise ValueError(f"there are no data {value!r}{did_you_mean(value, self._names)}")
        return self._names[value]

    def _check_values(self, table: dict[str, Any]) -> None:
        for name in self._values:
            if name not in table:
                raise ValueError(f"{name!r} is given a value, but is no parameter{did_you_mean(name, table)}")

    def _variable(self, name: str, value: Any) -> PSD | HermitianPSD | Variable:
        table = _table(value)
        if "psd" in table:
            check_keys(table, "matrix")
            hermitian = typed(table.get("hermitian", False), bool, "hermitian")
            return PSD(table["psd"], name=typed(table.get("name", name), str, "name"), hermitian=hermitian)
        check_keys(table, "variable", also=KEYS["matrix"])
        lower, upper = (self._number(table[end]) if end in table else None for end in ("lower", "upper"))
        return Variable(
            _shape(table.get("shape", ())),
            name=typed(table.get("name", name), str, "name"),
            nonneg=typed(table.get("nonneg", False), bool, "nonneg"),
            lower=lower,
            upper=upper,
            symmetric=typed(table.get("symmetric", False), bool, "symmetric"),
        )

    def _problem(self, table: dict[str, Any]) -> Problem | None:
        """Return the problem; None if an error precedes it."""
        texts: list[Any] = []
        with self._errors.at("problem"):
            check_keys(table, "problem")
        with self._errors.at("problem"):
            texts = typed(table.get("subject_to", []), list, "subject_to")
        objective = None
        with self._errors.at("problem"):
            given = [sense for sense in _SENSES if sense in table]
            if len(given) != 1:
                found = " and ".join(given) or "neither"
                raise ValueError(f"{found} given; expected either minimize or maximize")
            objective = self._objective(given[0], table[given[0]])
        constraints = [self._constraint(f"subject_to[{k}]", text) for k, text in enumerate(texts)]
        declared = [c for c in constraints if c is not None]
        if objective is None or len(declared) < len(constraints):
            return None
        with self._errors.at("problem"):
            problem = Problem(objective, declared)
            if all(p.value is not None for p in problem.parameters):
                problem.program()  # refuses bounds that cross
            return problem
        return None

    def _objective(self, sense: str, text: Any) -> Minimize | None:
        """Return the objective; None if it, or an entry that it names, has an error."""
        if not self._fails(text):
            with self._errors.at(f"problem: {sense}"):
                return _SENSES[sense](evaluate(typed(text, str, "the value"), self._names))
        return None

    def _constraint(self, place: str, text: Any) -> Declared | None:
        """Return a constraint; None if it, or an entry that it names, has an error."""
        if not self._fails(text):
            with self._errors.at(f"problem: {place}"):
                constraint = evaluate(typed(text, str, "the value"), self._names)
                if isinstance(constraint, Declared):
                    return constraint
                expected = "a comparison (<=, >=, ==) or between(...)"
                raise TypeError(f"{text!r} is no constraint; expected {expected}")
        return None

    def _check_used(self, sections: dict[str, dict[str, Any]]) -> None:
        """Refuse entries that no text and no other entry names."""
        mentioned = set(_mentioned(list(sections["problem"].values())))
        for section in ("parameters", "variables", "expressions"):
            for name, value in sections[section].items():
                mentioned |= set(_mentioned(value)) - {name}
        for section in ("data", "parameters", "variables", "expressions"):
            for name in sections[section]:
                with self._errors.at(section):
                    if name not in mentioned and is_name(name):
                        raise ValueError(f"{name!r} occurs in no expression of the problem; remove or use it")


def _mentioned(value: Any) -> Iterator[str]:
    """Yield all names in the texts and keys of a value."""
    if isinstance(value, str):
        yield from NAME.findall(value)
    elif isinstance(value, list):
        for part in value:
            yield from _mentioned(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _mentioned(part)


def _table(value: Any) -> Any:
    return typed(value, dict, "the value")


def _shape(value: Any) -> Any:
    """Return the shape of an entry, which fits in memory."""
    shape = tuple(value) if isinstance(value, list) else value
    if isinstance(shape, tuple) and all(type(size) is int and size > 0 for size in shape):
        check_memory(8.0 * math.prod(shape), f"shape is {value}, which")
    return shape


def _check_name(name: str) -> None:
    if name in FUNCTIONS:
        raise ValueError(f"{name!r} is the name of a function; choose another")
    if not is_name(name):
        raise ValueError(f"{name!r} is not a name; expected letters, digits and _, such as X0")
