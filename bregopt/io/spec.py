"""Problems in files: spec files, with a whole problem, its data and how to solve it, in one TOML file.

Its data are numbers in it, and arrays in files of its folder. The file ``spec.schema.json`` beside this
module describes the keys (JSON Schema, draft 2020-12). Nothing in a spec file is run as Python; see
:func:`bregopt.io.evaluate.evaluate` for the syntax of expressions. The errors of one file are collected.
"""

from __future__ import annotations

import keyword
import math
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import check_memory, complex_array, finite_array, symmetric_matrix
from bregopt.errors import did_you_mean
from bregopt.files import path_of, read_arrays, read_text
from bregopt.io.cbf import SUFFIXES as CBF
from bregopt.io.cbf import read_cbf
from bregopt.io.evaluate import FUNCTIONS, evaluate
from bregopt.io.matrices import SUFFIXES as MATRICES
from bregopt.io.matrices import Table, read_matrix
from bregopt.io.sdpa import SUFFIXES as SDPA
from bregopt.io.sdpa import read_sdpa
from bregopt.io.serialization import PlainReader, in_program
from bregopt.modeling.atoms import diag
from bregopt.modeling.complex_variables import ComplexOperand, HermitianPSD
from bregopt.modeling.convex.expression import Maximize, Minimize
from bregopt.modeling.expressions import holds_complex
from bregopt.modeling.objectives import frobenius_div, logdet_div, von_neumann_div
from bregopt.modeling.problem import Declared, Problem
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass
from bregopt.routes.registry import RouteOptions, check_options
from bregopt.routes.solution import Solution

_SENSES = {"minimize": Minimize, "maximize": Maximize}
_SECTIONS = ("data", "parameters", "variables", "expressions", "problem", "solve")
_OPERANDS = (PSD, HermitianPSD, ComplexOperand, Variable, Parameter)
_FAILED = object()  # the value of a name whose own entry has an error
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The keys of each table of a spec file; the solver checks its own options.
KEYS: dict[str, tuple[str, ...]] = {
    "spec": ("title", "arrays", "digest", *_SECTIONS),
    "file": ("file", "key", "low_rank"),
    "factor": ("factor",),
    "parameter": ("shape", "value", "name", "lo", "hi", "complex", "hermitian"),
    "matrix": ("psd", "hermitian", "name"),
    "variable": ("shape", "nonneg", "lower", "upper", "symmetric", "complex", "hermitian", "name"),
    "problem": ("minimize", "maximize", "subject_to"),
}
# Options that a file may set: those of the routes of this package that are data, and of the backends of CVXPY
# tolerances and limits. Others could write files, as SCS's write_data_filename does.
_OPTIONS = frozenset(RouteOptions.__annotations__) - {"callback", "tuning"}
_BACKEND_OPTIONS = frozenset(
    (
        *("abstol", "abstol_inacc", "alpha", "eps", "eps_abs", "eps_infeas", "eps_rel", "feastol"),
        *("feastol_inacc", "max_iter", "max_iters", "max_threads", "reltol", "reltol_inacc", "rho"),
        *("scale", "sigma", "threads", "time_limit", "time_limit_secs", "tol_feas", "tol_gap_abs"),
        *("tol_gap_rel", "tol_infeas_abs", "tol_infeas_rel", "tol_ktratio"),
    )
)
ACCEPTED = (
    f"a spec (.toml), an SDPA file ({', '.join(SDPA)}), a CBF file ({', '.join(CBF)}) or a matrix "
    f"({', '.join(MATRICES)})"
)
DIVERGENCES: dict[str, Callable[..., Any]] = {
    "frobenius": frobenius_div,
    "logdet": logdet_div,
    "von_neumann": von_neumann_div,
}
PROBLEMS = ("nearest-correlation", "nearest-psd")  # of one matrix
_KINDS = (FileNotFoundError, TypeError, ValueError)


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
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from error
    return _Reader(path, document, dict(parameters or {})).spec()


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
            _check_keys(self._document, "spec")
        title = self._path.stem
        with at(""):
            title = typed(self._document.get("title", title), str, "title")
        sections = {name: self._section(name) for name in _SECTIONS}
        if "arrays" in self._document:
            with at("arrays"):
                self._arrays = _arrays_of(
                    self._document["arrays"], self._document.get("digest"), self._path.parent
                )
                self._names |= {name: part for name, part in self._arrays.items() if is_name(name)}
        self._read("data", sections["data"], self._datum)
        self._read("parameters", sections["parameters"], self._parameter)
        for name in self._values:
            with at("parameters"):
                if name not in sections["parameters"]:
                    hint = did_you_mean(name, sections["parameters"])
                    raise ValueError(f"{name!r} is given a value, but is no parameter{hint}")
        self._read("variables", sections["variables"], self._variable)
        declared = {name: u for name, u in self._names.items() if isinstance(u, _OPERANDS)}
        operands = {name: in_program(u) for name, u in declared.items()}
        plain = PlainReader(operands, self._arrays)
        self._read("expressions", sections["expressions"], lambda _, table: plain.item(_table(table)))
        problem = self._problem(sections["problem"])
        self._check_used(sections)
        solver, options = "auto", dict(sections["solve"])
        with at("solve"):
            solver = typed(options.pop("solver", solver), str, "solver")
            check_options(solver, options)
            _check_file_options(options)
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
                if name in FUNCTIONS:
                    raise ValueError(f"{name!r} is the name of a function; choose another")
                if not is_name(name):
                    raise ValueError(f"{name!r} is not a name; expected letters, digits and _, such as X0")
                if name in self._names:
                    homes = (section for section in _SECTIONS if name in self._document.get(section, {}))
                    raise ValueError(f"{name!r} is a name in {next(homes, 'arrays')} already; choose another")
                self._names[name] = _FAILED
                if not fails:
                    with self._errors.at(f"{section}.{name}"):
                        self._names[name] = read(name, value)

    def _fails(self, value: Any) -> bool:
        """Whether a value names an entry that has an error."""
        return any(self._names.get(name) is _FAILED for name in _mentioned(value))

    def _datum(self, name: str, value: Any) -> Any:
        found, table = _entry_of(value, self._path.parent)
        if table is not None:
            labels = {own for own in (table.index, table.columns) if own is not None}
            if len(labels) == 1 and table.values.shape == 2 * (len(labels.pop()),):
                self._labeled.append(table)
        return found

    def _parameter(self, name: str, value: Any) -> Any:
        table = value if isinstance(value, dict) else {"value": value}
        _check_keys(table, "parameter")
        given = self._values.get(name, table.get("value"))
        kinds = _kinds(table)
        checked = complex_array if any(kinds.values()) else finite_array
        number = None if given is None else checked(self._number(given), "the value")
        shape = _shape(table.get("shape", () if number is None else number.shape))
        if number is not None and number.ndim == 0 and shape:
            number = np.full(shape, number)
        ends: dict[str, Any] = {
            end: np.broadcast_to(self._number(table[end]), shape) for end in ("lo", "hi") if end in table
        }
        given_name = typed(table.get("name", name), str, "name")
        return Parameter(shape, value=number, name=given_name, **ends, **kinds)

    def _number(self, value: Any) -> Any:
        """Return numbers that an entry holds, or names."""
        if not isinstance(value, str):
            return complex_array(value, "the value") if holds_complex(value) else _inline(value)
        if value not in self._names:
            raise ValueError(f"there are no data {value!r}{did_you_mean(value, self._names)}")
        return self._names[value]

    def _variable(self, name: str, value: Any) -> PSD | HermitianPSD | Variable:
        table = _table(value)
        if "psd" in table:
            _check_keys(table, "matrix")
            hermitian = typed(table.get("hermitian", False), bool, "hermitian")
            return PSD(table["psd"], name=typed(table.get("name", name), str, "name"), hermitian=hermitian)
        _check_keys(table, "variable", also=KEYS["matrix"])
        lower, upper = (self._number(table[end]) if end in table else None for end in ("lower", "upper"))
        return Variable(
            _shape(table.get("shape", ())),
            name=typed(table.get("name", name), str, "name"),
            nonneg=typed(table.get("nonneg", False), bool, "nonneg"),
            lower=lower,
            upper=upper,
            symmetric=typed(table.get("symmetric", False), bool, "symmetric"),
            **_kinds(table),
        )

    def _problem(self, table: dict[str, Any]) -> Problem | None:
        """Return the problem; None if an error precedes it."""
        texts: list[Any] = []
        with self._errors.at("problem"):
            _check_keys(table, "problem")
        with self._errors.at("problem"):
            texts = typed(table.get("subject_to", []), list, "subject_to")
        objective = None
        with self._errors.at("problem"):
            given = [sense for sense in _SENSES if sense in table]
            if len(given) != 1:
                found = " and ".join(given) or "neither"
                raise ValueError(f"{found} given; expected either minimize or maximize")
            text = table[given[0]]
            if not self._fails(text):
                with self._errors.at(f"problem: {given[0]}"):
                    objective = _SENSES[given[0]](evaluate(typed(text, str, "the value"), self._names))
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


def _check_file_options(options: Mapping[str, Any]) -> None:
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


def _check_keys(table: dict[str, Any], kind: str, also: Iterable[str] = ()) -> None:
    """Refuse a key that a table of this kind does not have."""
    known = (*KEYS[kind], *also)
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")


def _entry_of(value: Any, folder: Path) -> tuple[Any, Table | None]:
    """Return the value of an entry of ``[data]``, and the table that it was read from."""
    if not isinstance(value, dict):
        return _inline(value), None
    if "factor" in value:
        _check_keys(value, "factor")
        return LowRank(finite_array(value["factor"], "factor", ndim=2)), None
    _check_keys(value, "file")
    if "file" not in value:
        raise ValueError('file is missing; expected { file = "name.csv" }')
    key = typed(value["key"], str, "key") if "key" in value else None
    table = read_matrix(_beside(typed(value["file"], str, "file"), folder), key)
    if not typed(value.get("low_rank", False), bool, "low_rank"):
        return table.values, table
    values = table.values
    return LowRank(values if sp.issparse(values) else values.reshape(len(values), -1)), table


def _arrays_of(name: Any, digest: Any, folder: Path) -> dict[str, Any]:
    """Return all arrays of an ``.npz`` file by name: finite numbers and strings, of any shape, also empty."""
    path = _beside(typed(name, str, "the value"), folder)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: expected an .npz file")
    arrays = read_arrays(path, None if digest is None else typed(digest, str, "digest"))
    for name, array in arrays.items():
        if array.dtype.kind not in "biuU":
            complex_array(array, f"{name} of {path}")
    return arrays


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


def _kinds(table: dict[str, Any]) -> dict[str, bool]:
    """Return which kinds of complex numbers a parameter or an ordinary variable has."""
    return {kind: typed(table.get(kind, False), bool, kind) for kind in ("complex", "hermitian")}


# --- The files of the command line ---


def is_sdpa(path: Path) -> bool:
    """Whether a name has an ending of SDPA's sparse format."""
    return path.name.lower().endswith(SDPA)


def states_problem(path: Path) -> bool:
    """Whether a name has the ending of a file that states a whole problem."""
    return path.suffix.lower() == ".toml" or is_sdpa(path) or _is_cbf(path)


def _is_cbf(path: Path) -> bool:
    return path.name.lower().endswith(CBF)


def problem_of_file(path: Path, parameters: Mapping[str, Any]) -> Spec:
    """Return the problem that a file states; `parameters` are values for those of a spec.

    Raises
    ------
    TypeError, ValueError
        If the file cannot be read, or a parameter has no value.
    """
    if not (is_sdpa(path) or _is_cbf(path)):
        spec = load_spec(path, parameters)
        for p in spec.problem.parameters:
            if p.value is None:
                raise ValueError(f"{path}: parameter {p.name} has no value; give one by --set {p.name}=...")
        return spec
    problem = read_sdpa(path) if is_sdpa(path) else read_cbf(path)
    program, n = problem.program(), [X.n for X in problem.matrices]
    orders = f"{len(n)} matrices of order up to {max(n)}" if len(n) > 1 else f"1 matrix of order {n[0]}"
    sizes = f"{program.m} equalities, {orders}, {program.k} nonnegative numbers"
    if not is_sdpa(path):
        cones = f"second-order cones: {program.cones.count}"
        sizes = f"{program.m} rows, {orders}, {program.k} scalars, {cones}"
    return Spec(f"{path.name}: {sizes}", problem)


def problem_of_matrix(path: Path, key: str | None, problem: str | None, divergence: str) -> Spec:
    """Return a problem of the matrix in a file, one of :data:`PROBLEMS`.

    Raises
    ------
    ValueError
        If the matrix cannot be read or is not symmetric, its labels differ, or `problem` is None.
    """
    if path.suffix.lower() not in MATRICES:
        raise ValueError(f"{path}: files of type {path.suffix!r} are not read; expected {ACCEPTED}")
    table = read_matrix(path, key)
    if problem is None:
        choices = " or ".join(f"--problem {name}" for name in PROBLEMS)
        raise ValueError(f"{path} is a matrix: say what to find, {choices}")
    if table.index is not None and table.columns is not None and table.index != table.columns:
        raise ValueError(f"{path}: the labels of the rows and of the columns differ; expected the same")
    A = symmetric_matrix(table.values, str(path))
    X = PSD(len(A), name="X")
    rows = [diag(X) == 1] if problem == PROBLEMS[0] else []
    objective = Minimize(DIVERGENCES[divergence](X, A))
    return Spec(f"{problem} of {path.name}, {divergence}", Problem(objective, rows), labeled=table)
