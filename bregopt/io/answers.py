"""Answers on disk: files of one answer, and a folder that a batch fills and from which a later call goes on.

    batch.json      the task, the version of bregopt, and a fingerprint of each setting
    0000032.part    what was found from position 32 on, after its SHA-256
    X.npy           the matrices of a stack of arrays, or the rows of the panel in a Parquet file

Each part is written whole or not at all, and after its matrices, so the batch may be killed at any time. A
part is a pickle, but one that runs no code: only classes of data are read, those of this package, of NumPy,
of SciPy's sparse arrays and of pandas.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import io
import json
import math
import os
import pickle
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.files import is_standard, locked, replacing, zipped
from bregopt.io.matrices import csv_text, is_pandas
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass
from bregopt.routes.solution import Solution

if TYPE_CHECKING:
    from bregopt.io.spec import Spec

PARTS = ("X", "u", "duals")  # of an answer, that a report has on request

_FACTS, _MATRICES, _SUFFIX = "batch.json", "X.npy", ".part"
_SHA = hashlib.sha256().digest_size
_BUILTINS = frozenset({"complex", "frozenset", "range", "set", "slice"})  # and exceptions
_NUMPY = frozenset({"LinAlgError", "_frombuffer", "_reconstruct", "dtype", "ndarray", "scalar"})
_PANDAS = ("pandas.core.", "pandas._libs.")
_OF_PANDAS = frozenset({"_new_Index", "_unpickle_block", "_unpickle_timestamp"})  # functions
_PLAIN = (bool, int, float, complex, str, bytes, os.PathLike, np.generic, type(None))


# --- Fingerprints -----------------------------------------------------------------------------------


def fingerprint(*values: Any) -> str:
    """Return a SHA-256 of values of any kind: equal in each process for equal data, whatever is cached.

    Parameters
    ----------
    *values
        Numbers, strings, arrays, frames, containers, functions with what they enclose, and objects that
        pickle.

    Raises
    ------
    TypeError
        If a part cannot be pickled.
    """
    return _hash(values, {}).hex()


def _hash(value: Any, seen: dict[int, tuple[bytes, Any]]) -> bytes:
    """Return the hash of a value; `seen` has those of the objects so far, which it keeps alive."""
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r};".encode()
    if id(value) in seen:
        return seen[id(value)][0]
    seen[id(value)] = b"inside", value  # of an object that leads back to itself
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        found = hashlib.sha256(f"array {value.dtype.str} {value.shape};".encode())
        found.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data if value.size else b"")
    else:
        kind, parts = _parts_of(value)
        found = hashlib.sha256(f"{kind} {len(parts)};".encode())
        for part in parts:
            found.update(_hash(part, seen))
    seen[id(value)] = found.digest(), value
    return seen[id(value)][0]


def _parts_of(value: Any) -> tuple[str, list[Any]]:
    """Return the kind of a value that is not plain, and its parts."""
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        return kind, list(value)
    if isinstance(value, np.ndarray):
        return kind, [value.shape, value.ravel().tolist()]
    if isinstance(value, Mapping):
        return kind, [part for pair in value.items() for part in pair]
    if isinstance(value, set | frozenset):
        return kind, sorted(map(repr, value))
    if sp.issparse(value):
        entries = value.tocoo()
        return kind, [entries.shape, entries.row, entries.col, entries.data]
    if is_pandas(value, "DataFrame") or is_pandas(value, "Series"):
        axes = [list(map(repr, axis)) for axis in value.axes]
        return kind, [np.asarray(value), *axes]
    if isinstance(value, type | BuiltinFunctionType):
        return kind, [str(value.__module__), value.__qualname__]
    if isinstance(value, MethodType):
        return kind, [value.__func__, value.__self__]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return kind, [value.__qualname__, value.__code__, value.__defaults__, value.__kwdefaults__, cells]
    if isinstance(value, CodeType):
        return kind, [value.co_code, value.co_names, list(value.co_consts)]
    return _parts_of_object(value)


def _parts_of_object(value: Any) -> tuple[str, list[Any]]:
    """Return the class of an object and its state, without cached properties."""
    cls = type(value)
    make, arguments, state, items, pairs = (*value.__reduce_ex__(2), None, None, None)[:5]
    if isinstance(state, dict):
        cached = (functools.cached_property,)
        state = {name: own for name, own in state.items() if not isinstance(getattr(cls, name, 0), cached)}
    made = [] if make.__module__ == "copyreg" else [make.__qualname__]
    return f"{cls.__module__}.{cls.__qualname__}", [
        *made,
        [own for own in arguments if own is not cls],
        state,
        list(items or ()),
        list(pairs or ()),
    ]


# --- The folder -------------------------------------------------------------------------------------


def folder_of(resume: Any, task: str, settings: Mapping[str, Any]) -> Answers | None:
    """Return the folder of a batch, which is made if it is not there; None without the argument.

    Parameters
    ----------
    resume : str, Path or None
    task : str
        The function that solves the batch.
    settings : mapping
        What its answers depend on, besides the problems.

    Raises
    ------
    TypeError, ValueError
        If `resume` is no folder, or one of another batch.
    """
    if resume is None:
        return None
    if not isinstance(resume, str | os.PathLike):
        raise TypeError(f"resume is {resume!r}; expected the path of a folder")
    path = Path(resume).absolute()
    if not path.parent.is_dir() or (path.exists() and not path.is_dir()):
        raise ValueError(f"resume is {path}; expected a folder, or a new name in a folder that exists")
    path.mkdir(exist_ok=True)
    answers = Answers(path)
    answers.claim(task, {name: fingerprint(value) for name, value in sorted(settings.items())})
    return answers


@dataclass(frozen=True, eq=False)
class Answers:
    """The folder of a batch.

    Parameters
    ----------
    path : Path
    """

    path: Path

    def claim(self, task: str, settings: Mapping[str, str]) -> None:
        """Write what the batch is, or compare it with what is written.

        Raises
        ------
        ValueError
            If the folder is one of another batch, or has other files.
        """
        version = sys.modules["bregopt"].__version__  # the package is above this module
        facts = {"task": task, "bregopt": version, "settings": dict(settings)}
        file = self.path / _FACTS
        if not file.exists():
            others = sorted(path.name for path in self.path.iterdir())
            if others:
                raise ValueError(
                    f"resume is {self.path}, which has other files ({others[0]}); expected a new or empty "
                    "folder, or one of an earlier call"
                )
            with replacing(file) as new:
                new.write(f"{json.dumps(facts, indent=1)}\n".encode())
            return
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
            found = known["task"], known["bregopt"], dict(known["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"resume is {self.path}, whose {_FACTS} is damaged ({error!r})") from None
        if found[:2] != (task, version):
            raise ValueError(
                f"resume is {self.path}, the folder of {found[0]} by bregopt {found[1]}; expected one of "
                f"{task} by bregopt {version}: give a new folder"
            )
        names = sorted(settings.keys() | found[2].keys())
        differ = [name for name in names if settings.get(name) != found[2].get(name)]
        if differ:
            raise ValueError(
                f"resume is {self.path}, the folder of a call with other values of {', '.join(differ)}; "
                "expected the same: give a new folder, or the values of that call"
            )

    @staticmethod
    def held(answers: Answers | None) -> AbstractContextManager[None]:
        """Keep other calls from the folder, if there is one, while this one fills it."""
        return nullcontext() if answers is None else locked(answers.path, "resume")

    def store(self, position: int, value: Any) -> None:
        """Write what was found from a position on.

        Raises
        ------
        TypeError
            If it has objects of other classes than those of data.
        """
        stream = io.BytesIO()
        _Writer(stream, protocol=5).dump(value)
        content = stream.getvalue()
        try:
            _Reader(io.BytesIO(content)).load()
        except pickle.UnpicklingError as error:
            raise TypeError(f"resume stores no such answer: {error}") from None
        with replacing(self._file(position)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def load(self, position: int) -> Any:
        """Return what was found from a position on; None where nothing is written."""
        file = self._file(position)
        if not file.exists():
            return None
        content = file.read_bytes()
        packed = content[_SHA:]
        if hashlib.sha256(packed).digest() != content[:_SHA]:
            raise ValueError(
                f"{file} is damaged: its SHA-256 differs; delete it, and its problems are solved again"
            )
        try:
            return _Reader(io.BytesIO(packed)).load()
        except Exception as error:  # a pickle of bytes that we did not write may raise any
            raise ValueError(f"{file} holds no answers of bregopt ({error}); delete it") from None

    def positions(self) -> list[int]:
        """Return the positions of the parts that are written, in their order."""
        names = (path.stem for path in self.path.glob(f"*{_SUFFIX}"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _file(self, position: int) -> Path:
        return self.path / f"{position:07d}{_SUFFIX}"

    # --- Matrices of a stack, beside the parts ---

    def write_matrices(self, position: int, X: Array, count: int) -> None:
        """Write the rows from a position on, of `count` in all, and wait until they are on the disk.

        Parameters
        ----------
        position : int
        X : array of shape (b, n, n) or (b, n)
            Matrices, or rows of a panel.
        count : int
        """
        file = self.path / _MATRICES
        shape = (count, *X.shape[1:])
        with file.open("r+b" if file.exists() else "w+b") as out:
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(out, header)  # it has room for a larger first number
            start, row = out.tell(), 8 * int(np.prod(shape[1:]))
            out.seek(0, os.SEEK_END)
            if out.tell() != start + count * row:
                out.truncate(start + count * row)
            out.seek(start + position * row)
            out.write(np.ascontiguousarray(X, dtype="<f8").data)
            out.flush()
            os.fsync(out.fileno())

    def matrices(self) -> Any:
        """Return the matrices as a memory map."""
        return np.load(self.path / _MATRICES, mmap_mode="r")

    def check_matrices(self, position: int, rows: slice, known: str) -> None:
        """Raise a ValueError unless the rows of the part at a position have a fingerprint."""
        try:
            same = fingerprint(np.array(self.matrices()[rows])) == known
        except (OSError, ValueError):
            same = False
        if not same:
            raise ValueError(
                f"{self.path / _MATRICES} is damaged, or is not there, in rows {rows.start} to "
                f"{rows.stop - 1}; delete {self._file(position)}, and these are solved again"
            )


class _Writer(pickle.Pickler):
    """Writes members of enumerations as their values; Python 3.11.0 to 3.11.3 look them up by a function."""

    def reducer_override(self, item: Any) -> Any:
        """Return how a member of an enumeration is restored."""
        return (type(item), (item.value,)) if isinstance(item, Enum) else NotImplemented


class _Reader(pickle.Unpickler):
    """Reads classes of data only, and no functions but those by which NumPy and pandas restore theirs."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that a pickle names."""
        if not _is_known(module, name):
            raise pickle.UnpicklingError(f"it has an object of {module}.{name}; expected data")
        found = super().find_class(module, name)
        of_sparse = module.startswith("scipy.") and not issubclass(found, sp.sparray | sp.spmatrix)
        other = module.startswith("bregopt.") and (not isinstance(found, type) or found.__module__ != module)
        if of_sparse or other:
            raise pickle.UnpicklingError(f"it has an object of {module}.{name}; expected data")
        return found


def _is_known(module: str, name: str) -> bool:
    if "." in name:
        return False
    if module == "builtins":
        found = getattr(builtins, name, None)
        return name in _BUILTINS or (isinstance(found, type) and issubclass(found, Exception))
    if module.partition(".")[0] == "numpy":
        return name in _NUMPY
    if module.startswith(_PANDAS):
        return name in _OF_PANDAS or name[:1].isupper()
    return module.startswith(("bregopt.", "scipy.sparse."))


# --- One answer ---


def write_answer(path: Path, spec: Spec, solution: Solution, parts: Collection[str] = ()) -> None:
    """Write an answer in the format of the ending of `path`; ``-`` alone is a report on the standard output.

    Parameters
    ----------
    path : Path
    spec : Spec
    solution : Solution
        With an ``X``, if it is written as ``.csv``.
    parts : collection of {"X", "u", "duals"}
        What a report has besides status, values and timings.
    """
    data = WRITERS[path.suffix.lower() or ".json"](spec, solution, parts)
    if is_standard(path):
        sys.stdout.write(data.decode("utf-8"))
    else:
        with replacing(path) as file:
            file.write(data)


def _npz(spec: Spec, solution: Solution, _: Collection[str]) -> bytes:
    """Return ``X`` (``factor`` where low rank; ``X_name`` where several), ``u_name`` and ``dual_k``."""
    arrays: dict[str, Any] = {}
    found = _matrices(spec, solution)
    for name, value in found.items():
        kind, array = ("factor", value.factor) if isinstance(value, LowRank) else ("X", value)
        arrays[kind if len(found) == 1 else f"{kind}_{name}"] = array
    arrays |= {f"u_{name}": value for name, value in solution.u.items() if value is not None}
    arrays |= {f"dual_{k}": value for k, value in enumerate(solution.duals or ())}
    return zipped(arrays)


def _json(spec: Spec, solution: Solution, parts: Collection[str]) -> bytes:
    """Return status, values, certificate and timings, and these parts; null for what is not finite.

    Complex numbers are tables of their real and imaginary parts.
    """
    names = ("status", "value", "dual_value", "gap", "residuals", "solver", "iterations", "timings")
    report = {name: getattr(solution, name) for name in names}
    if "X" in parts:
        matrices = _matrices(spec, solution)
        report["X"] = {X.name: _matrix(matrices.get(X.name)) for X in spec.problem.matrices}
        if spec.labeled is not None:
            report["labels"] = {"rows": spec.labeled.index, "columns": spec.labeled.columns}
    if "u" in parts:
        report["u"] = solution.u
    if "duals" in parts:
        constraints = spec.problem.constraints
        duals = solution.duals or [None] * len(constraints)
        labeled = zip(constraints, duals, strict=True)
        report["duals"] = [{"constraint": c.label, "value": value} for c, value in labeled]
    return (json.dumps(_plain(report), indent=2, allow_nan=False) + "\n").encode("utf-8")


def _csv(spec: Spec, solution: Solution, _: Collection[str]) -> bytes:
    table = spec.labeled
    if table is None or solution.X.shape != table.values.shape:
        return csv_text(solution.X).encode("utf-8")
    return csv_text(solution.X, table.index, table.columns).encode("utf-8")


def _matrices(spec: Spec, solution: Solution) -> dict[str, Any]:
    """Return the matrices of an answer by name; none if there is no answer."""
    if solution.X is None:
        return {}
    found = solution.X if isinstance(solution.X, tuple) else (solution.X,)
    return {X.name: value for X, value in zip(spec.problem.matrices, found, strict=True)}


def _matrix(X: Any) -> Any:
    return {"factor": X.factor} if isinstance(X, LowRank) else X


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, complex | np.ndarray) and np.iscomplexobj(value):
        return {"real": _plain(np.real(value)), "imag": _plain(np.imag(value))}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


WRITERS: dict[str, Callable[[Spec, Solution, Collection[str]], bytes]] = {
    ".npz": _npz,
    ".json": _json,
    ".csv": _csv,
}
