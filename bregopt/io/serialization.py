"""Objects of the language as tables of plain data, and tables as objects again.

A table holds the fields of an object: numbers, texts, arrays by their names in an ``.npz`` file, and
variables by their names. So a class needs no code here. It joins with its line in :data:`CLASSES`, a row
family with its line in :data:`bregopt.program.rows.FAMILIES`. The functions of the language make objects
whose shapes agree and whose indices exist. A file may say anything, so both are checked.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bregopt.errors import did_you_mean
from bregopt.modeling.affine import Affine, Product
from bregopt.modeling.complex_expressions import ComplexEquality, ComplexExpression, HermitianInequality
from bregopt.modeling.constraints import MatrixInequality, SecondOrderConstraint
from bregopt.modeling.convex.atom import Atom
from bregopt.modeling.convex.expression import ConvexConstraint, CurvedExpression, Term
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program.rows import FAMILIES, Bilinear, Coordinates, Rows
from bregopt.records import dataclass

CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(*FAMILIES, Coordinates, Product, Expression, ComplexExpression),
        *(SecondOrderConstraint, MatrixInequality, ComplexEquality, HermitianInequality),
    )
}
_IN_TEXT = (ConvexConstraint, CurvedExpression, Term, Atom)  # compared like plain data, but written as text
RESERVED = {"class", "csr", "full", "name"}  # keys of the tables that are not mappings by names
_SPARSE = {"csr", "shape"}
_CSR = ("data", "indices", "indptr")
_STARRED = inspect.Parameter.VAR_POSITIONAL
_KINDS: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": int | float,
    "bool": bool,
    "tuple": tuple,
    "dict": dict,
    "Array": np.ndarray,
    "IntArray": np.ndarray,
    "Expression": Expression,
    "ComplexExpression": ComplexExpression,
}
_DTYPES = {"Array": "f", "IntArray": "i"}


@dataclass(frozen=True, eq=False)
class PlainWriter:
    """Writes objects as tables.

    Parameters
    ----------
    names : mapping from operand to str
        The names of variables and parameters.
    arrays : dict from str to array
        Takes the arrays of the objects, each by the place of its field.
    """

    names: Mapping[Any, str]
    arrays: dict[str, Any]

    def table(self, item: Any, place: str) -> dict[str, Any]:
        """Return the fields of an object as values for TOML; those with their default values are left out."""
        if type(item).__name__ not in CLASSES:
            raise TypeError(
                f"{item!r} cannot be written to a spec: its class {type(item).__name__} is not known there"
            )
        arguments = _arguments(type(item))
        names = sorted(arguments, key=lambda name: name != "label")  # it says what follows
        found = {name: _attribute(item, name) for name in names}
        kept = {name: part for name, part in found.items() if not _is_default(arguments[name], part)}
        return {name: self.value(part, f"{place}.{name}") for name, part in kept.items()}

    def value(self, value: Any, place: str) -> Any:
        """Return a value for TOML; `place` is the name that an array gets."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        if sp.issparse(value):
            matrix = sp.csr_array(value)
            self.arrays.update({f"{place}.{part}": getattr(matrix, part) for part in _CSR})
            return {"csr": place, "shape": list(matrix.shape)}
        if isinstance(value, Mapping):
            named = {self.names.get(key, key): part for key, part in value.items()}
            return {name: self.value(part, f"{place}.{name}") for name, part in named.items()}
        if isinstance(value, list | tuple):
            return [self.value(part, f"{place}.{k}") for k, part in enumerate(value)]
        if isinstance(value, Operand) and value in self.names:
            return {"name": self.names[value]}
        return {"class": type(value).__name__, **self.table(value, place)}

    def _array(self, array: NDArray[Any], place: str) -> Any:
        if array.dtype == float and array.size and is_constant(array):
            return {"full": float(array.flat[0]), "shape": list(array.shape)}
        self.arrays[place] = array
        return place


def in_program(operand: Any) -> Any:
    """Return the real operand that stands for a declared one in expressions: of most the operand itself."""
    return getattr(operand, "block", getattr(operand, "parts", operand))


def is_constant(array: NDArray[Any]) -> bool:
    """Whether all elements of an array are the same, bit by bit."""
    first = array.reshape(-1)[:1]
    return bool((array == first).all()) and bool((np.signbit(array) == np.signbit(first)).all())


def same_data(a: Any, b: Any) -> bool:
    """Whether two objects have the same class and the same data, bit by bit; labels may differ."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if sp.issparse(a):
        return a.shape == b.shape and all(same_data(getattr(a, part), getattr(b, part)) for part in _CSR)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Mapping):
        alike = len(a) == len(b) and all(same_data(x, y) for x, y in zip(a, b, strict=True))
        return alike and all(same_data(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_data(x, y) for x, y in zip(a, b, strict=True))
    if type(a).__name__ in CLASSES or isinstance(a, _IN_TEXT):
        names = [name for name in _arguments(type(a)) if name not in ("label", "text")]
        return all(same_data(_attribute(a, name), _attribute(b, name)) for name in names)
    return not isinstance(a, Operand) and bool(a == b)


@dataclass(frozen=True, eq=False)
class PlainReader:
    """Reads the tables of :class:`PlainWriter`.

    Parameters
    ----------
    names : mapping from str to operand
        Variables and parameters.
    arrays : mapping from str to array
    """

    names: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def item(self, table: Mapping[str, Any]) -> Any:
        """Return the object of a table, checked: without a class an expression or a sparse matrix.

        Raises
        ------
        TypeError, ValueError
            If a class, field or name is unknown, a field is missing or of another kind, or shapes and indices
            do not agree.
        """
        if set(table) == _SPARSE:
            return self._csr(table["csr"], table["shape"])
        parts = dict(table)
        name = parts.pop("class", "Expression")
        if not isinstance(name, str) or name not in CLASSES:
            raise ValueError(f"class is {name!r}{did_you_mean(str(name), CLASSES)}")
        arguments = _arguments(CLASSES[name])
        for key in parts:
            if key not in arguments:
                raise ValueError(f"unknown key {key!r}{did_you_mean(key, arguments)}")
        for key, argument in arguments.items():
            if key not in parts and argument.default is argument.empty and argument.kind is not _STARRED:
                raise ValueError(f"{key} is missing")
        found = {key: self._field(key, part, arguments[key]) for key, part in parts.items()}
        starred = next((key for key, argument in arguments.items() if argument.kind is _STARRED), "")
        item = CLASSES[name](*found.pop(starred, ()), **found)
        _check_object(item)
        return item

    def _field(self, name: str, value: Any, argument: inspect.Parameter) -> Any:
        """Return the value of a field; its annotation says which kind it must have."""
        annotation = "tuple[Any, ...]" if argument.kind is _STARRED else str(argument.annotation)
        try:
            found = value if annotation.startswith("str") else self._value(value, annotation)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
        kind = next((kind for start, kind in _KINDS.items() if annotation.startswith(start)), object)
        if not isinstance(found, kind) or isinstance(found, bool) != (kind is bool):
            raise TypeError(f"{name} is {value!r}; expected {annotation}")
        if isinstance(found, np.ndarray) and found.dtype.kind not in _DTYPES.get(annotation, "biuf"):
            raise TypeError(f"{name} has dtype {found.dtype}; expected {annotation}")
        return found

    def _value(self, value: Any, annotation: str) -> Any:
        if isinstance(value, str):
            return self._array(value)
        if isinstance(value, list):
            return tuple(self._value(part, annotation) for part in value)
        if not isinstance(value, Mapping):
            return value
        if "class" in value:
            return self.item(value)
        if set(value) == _SPARSE:
            return self._csr(value["csr"], value["shape"])
        if set(value) == {"full", "shape"}:
            return np.full(_shape(value["shape"]), float(value["full"]))
        if set(value) == {"name"}:
            return self._operand(value["name"])
        keyed = annotation.startswith("dict[Any")
        return {self._operand(key) if keyed else key: self._value(part, "") for key, part in value.items()}

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self.arrays:
            raise ValueError(f"there is no array {name!r}{did_you_mean(name, self.arrays)}")
        return self.arrays[name]

    def _operand(self, name: str) -> Any:
        if name not in self.names:
            raise ValueError(f"there is no variable or parameter {name!r}{did_you_mean(name, self.names)}")
        return self.names[name]

    def _csr(self, place: str, shape: Any) -> Any:
        data, indices, indptr = (self._array(f"{place}.{part}") for part in _CSR)
        matrix = sp.csr_array((data, indices, indptr), _shape(shape))
        matrix.check_format(full_check=True)
        return matrix


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        raise TypeError(f"shape is {value!r}; expected a list of integers")
    return tuple(value)


def _arguments(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a constructor; their annotations are text in this package."""
    return inspect.signature(cls).parameters


def _is_default(argument: inspect.Parameter, part: Any) -> bool:
    if part is None or (isinstance(part, Mapping) and not part):
        return True
    return isinstance(part, str | tuple) and type(argument.default) is type(part) and part == argument.default


def _attribute(item: Any, name: str) -> Any:
    """Return an argument of a constructor as the object keeps it, where needed as a private attribute."""
    return getattr(item, name) if hasattr(item, name) else getattr(item, f"_{name}")


def _check_object(item: Any) -> None:
    """Raise a ValueError if the parts of an object do not agree."""
    if isinstance(item, Affine):
        _check_affine(item)
    elif isinstance(item, ComplexExpression):
        _expect(item.imag.shape, item.real.shape, "imag")
    elif isinstance(item, Product):
        _check_product(item)
    elif isinstance(item, SecondOrderConstraint):
        if (item.dimensions < 1).any() or item.dimensions.sum() != item.body.size:
            raise ValueError(f"dimensions are {item.dimensions.tolist()}; expected a sum of {item.body.size}")
        _expect(item._of_bound.shape, (item.body.size,), "of_bound")
    elif isinstance(item, MatrixInequality):
        _expect(item.body.shape, 2 * item.body.shape[:1], "body")
    elif isinstance(item, Bilinear):
        _check_bilinear(item)
    elif is_dataclass(item) and isinstance(item, Rows):
        _check_family(item)


def _check_affine(e: Affine) -> None:
    if not all(type(size) is int and size > 0 for size in e.shape):
        raise ValueError(f"shape is {list(e.shape)}; expected positive integers")
    _expect(e.constant.shape, (math.prod(e.shape),), "constant")
    for X, rows in e.psd.items():
        if not isinstance(X, PSD) or not isinstance(rows, Rows):
            raise TypeError(f"psd has {X!r} with {rows!r}; expected rows of psd variables")
        _expect((rows.m, rows.n), (e.size, X.n), f"the rows of {X.name}, (rows, order),")
    for kind, maps in ((Variable, e.variables), (Parameter, e.parameters)):
        for u, matrix in maps.items():
            if not isinstance(u, kind) or not sp.issparse(matrix):
                raise TypeError(f"{u!r} has {matrix!r}; expected a sparse matrix of a {kind.__name__}")
            _expect(matrix.shape, (e.size, u.size), f"the matrix of {u.name}")
            _check_finite(matrix, f"the matrix of {u.name}")
    for product in e.products:
        if not isinstance(product, Product):
            raise TypeError(f"products has {product!r}; expected products of parameters")
        _expect(product.weights.shape[:1], (e.size,), "weights")


def _check_product(product: Product) -> None:
    p, factor = product.parameter, product.factor
    if not isinstance(p, Parameter) or not isinstance(factor, Affine) or not sp.issparse(product.weights):
        raise TypeError(f"{product!r}: expected a parameter, an expression and a sparse matrix")
    if factor.constant.any() or factor.parameters or factor.products:
        raise ValueError("factor has constants or parameters; expected variables alone")
    _check_index(product.at, p.size, "at")
    _expect(product.at.shape, (factor.size,), "at")
    _expect(product.weights.shape[1:], (factor.size,), "weights")
    _check_finite(product.weights, "weights")


def _check_family(rows: Any) -> None:
    """Check that every array of a family has a row for each of its `m`, and columns or indices up to `n`."""
    m, n = rows.m, rows.n
    for field in fields(rows):
        part = getattr(rows, field.name)
        if isinstance(part, Coordinates):
            for name, column in (("i", part.i), ("j", part.j), ("value", part.value)):
                _expect(column.shape, part.row.shape, name)
            for index, limit, name in ((part.row, m, "row"), (part.i, n, "i"), (part.j, n, "j")):
                _check_index(index, limit, name)
            if (np.diff(part.row) < 0).any():
                raise ValueError("row is not ascending")
            _check_finite(part.value, "value")
        elif isinstance(part, np.ndarray) and part.dtype.kind == "i":
            _expect(part.shape, (m,), field.name)
            _check_index(part, n, field.name)
        elif isinstance(part, np.ndarray) or sp.issparse(part):
            _expect(part.shape, (m, *(n for _ in part.shape[1:])), field.name)
            _check_finite(part, field.name)
            if len(part.shape) == 3 and (part != part.transpose(0, 2, 1)).any():
                raise ValueError(f"{field.name} has a matrix that is not symmetric")


def _check_bilinear(rows: Bilinear) -> None:
    for name, factor, index in (("L", rows.L, rows.i), ("R", rows.R, rows.j)):
        _expect(factor.shape[1:], (rows.n,), name)
        _check_finite(factor, name)
        _expect(index.shape, (rows.m,), f"the index of {name}")
        _check_index(index, factor.shape[0], f"the index of {name}")
    _expect(rows.weight.shape, (rows.m,), "weight")
    _check_finite(rows.weight, "weight")


def _check_index(index: Any, limit: int, name: str) -> None:
    outside = index[(index < 0) | (index >= limit)]
    if len(outside):
        raise ValueError(f"{name} has {int(outside[0])}; expected 0 to {limit - 1}")


def _check_finite(matrix: Any, name: str) -> None:
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        raise ValueError(f"{name} has a NaN or Inf; expected finite numbers")


def _expect(found: tuple[int, ...], expected: tuple[int, ...], name: str) -> None:
    if tuple(found) != expected:
        raise ValueError(f"{name} has shape {tuple(found)}; expected {expected}")
