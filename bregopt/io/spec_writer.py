"""A declared problem written as a spec: its structure as TOML, its arrays in an ``.npz`` file beside it.

The text is that of specs that people write. An expression stands in it as text where that text means exactly
the same expression, and otherwise by name, with its plain data in the table ``[expressions]``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from inspect import signature
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bregopt.divergences import BUILT_IN, DIVERGENCES
from bregopt.files import digest_of, path_of, replacing, zipped
from bregopt.io.evaluate import evaluate
from bregopt.io.serialization import RESERVED, PlainWriter, in_program, is_constant, same_data
from bregopt.io.spec import is_name
from bregopt.modeling.affine import Affine
from bregopt.modeling.complex_expressions import ComplexExpression
from bregopt.modeling.complex_variables import ComplexOperand, HermitianPSD
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.atom import Atom
from bregopt.modeling.convex.eigenvalues import DivergenceAtom, EigenvalueBound
from bregopt.modeling.convex.elementwise import Modulus
from bregopt.modeling.convex.expression import ConvexConstraint, Minimize, Term
from bregopt.modeling.expressions import Operand
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program.rows.base import LowRank

_MIRRORED = {"<=": ">=", ">=": "<=", "==": "=="}


def write_spec(
    path: str | PathLike[str],
    objective: Minimize,
    constraints: Sequence[Any],
    operands: Sequence[PSD | HermitianPSD | ComplexOperand | Variable | Parameter],
) -> None:
    """Write a declared problem; :meth:`bregopt.Problem.to_spec` has the details."""
    path = path_of(path)
    if path.suffix.lower() != ".toml":
        raise ValueError(f"path is {str(path)!r}; expected a name that ends with .toml")
    writer = _SpecWriter(operands)
    document = writer.document(objective, constraints)
    if not writer.arrays:
        with replacing(path) as file:
            file.write(_toml_text(document).encode("utf-8"))
        return
    arrays, content = path.with_suffix(".npz"), zipped(writer.arrays)
    named = {"arrays": arrays.name, "digest": digest_of(content)}
    with replacing(path) as file, replacing(arrays) as beside:  # both are complete before one is replaced
        file.write(_toml_text({**named, **document}).encode("utf-8"))
        beside.write(content)


class _SpecWriter:
    """Collects the tables and the arrays of a spec."""

    def __init__(
        self, operands: Sequence[PSD | HermitianPSD | ComplexOperand | Variable | Parameter]
    ) -> None:
        self.arrays: dict[str, Any] = {}
        declared = _named(operands)
        self._operands = {name: operand for operand, name in declared.items()}
        self._names = {in_program(operand): name for operand, name in declared.items()}
        self._plain = PlainWriter(self._names, self.arrays)
        self._expressions: dict[str, dict[str, Any]] = {}

    def document(self, objective: Minimize, constraints: Sequence[Any]) -> dict[str, Any]:
        """Return the tables of the spec."""
        sense = type(objective).__name__.lower()
        problem = {
            sense: self._curved(objective.expression, "cost"),
            "subject_to": [self._constraint(k, c) for k, c in enumerate(constraints)],
        }
        parameters = {n: self._parameter(n, p) for p, n in self._names.items() if isinstance(p, Parameter)}
        variables = {n: self._variable(n, u) for u, n in self._names.items() if not isinstance(u, Parameter)}
        tables = {f"expressions.{name}": table for name, table in self._expressions.items()}
        given = {"parameters": parameters} if parameters else {}
        return {**given, "variables": variables, **tables, "problem": problem}

    def _variable(self, name: str, u: PSD | Variable) -> dict[str, Any]:
        called = {} if u.name == name else {"name": u.name}
        if isinstance(u, PSD):
            hermitian = {"hermitian": True} if u.whole.is_hermitian else {}
            return {"psd": u.whole.n, **hermitian, **called}
        table: dict[str, Any] = {"shape": list(u.whole.shape)} if u.whole.shape else {}
        if u.whole is not u:
            return {**table, **_kind(u.whole), **called}
        for side, end in (("lower", u.lower), ("upper", u.upper)):
            if np.isfinite(end).any():
                table[side] = self._numbers(np.asarray(u.with_elements(end)), f"{name}_{side}")
        if str(table.get("lower")) == "0.0":  # not -0.0
            table["nonneg"] = True
            del table["lower"]
        symmetric = {"symmetric": True} if u.symmetric else {}
        return {**table, **symmetric, **called}

    def _parameter(self, name: str, p: Parameter) -> Any:
        called: dict[str, Any] = {} if p.name == name else {"name": p.name}
        shape = {"shape": list(p.whole.shape)} if p.whole.shape else {}
        if p.whole is not p:
            called |= _kind(p.whole)
        if p.value is None:
            return {**shape, **called}
        value = self._numbers(p.whole.value, f"{name}_value")
        ends = {
            which: self._numbers(end, f"{name}_{which}")
            for which, end in (("lo", p.lo), ("hi", p.hi))
            if end is not None
        }
        return {**shape, "value": value, **called, **ends} if shape or called or ends else value

    def _numbers(self, array: Any, name: str) -> float | str:
        """Return an array as one real number where all are the same, and otherwise its name."""
        if not np.iscomplexobj(array) and is_constant(array):
            return float(array.flat[0])
        return self._array(array, name)

    def _array(self, array: Any, name: str) -> str:
        name = self._free(name)
        self.arrays[name] = np.asarray(array) if np.iscomplexobj(array) else array
        return name

    def _curved(self, e: Any, name: str) -> str:
        """Return the text of an expression that may have curvature."""
        if isinstance(e, Operand) and e in self._names:
            return self._names[e]
        if isinstance(e, Affine):
            return self._affine(e, name)
        if self._means(e.label, e):
            return e.label
        terms = [self._term(t, e.shape) for t in e.terms]
        affine = e.affine
        fixed = affine.is_constant and not affine.operands("parameters")
        if not fixed or affine.constant.any() or not terms:
            terms.append(self._bound(affine, name) if fixed else self._affine(affine, name))
        return " + ".join(terms).replace(" + -", " - ")

    def _term(self, t: Term, shape: tuple[int, ...]) -> str:
        """Return the text of a number times a parameter times a linear map of an atom."""
        atom = t.atom
        text = self._divergence(atom) if isinstance(atom, DivergenceAtom) else self._atom(atom)
        if t.matrix is not None:
            text = self._mapped(t, shape, text)
        scaled = text if t.factor == 1 else f"{t.factor!r} * {text}"
        if t.parameter is None:
            return scaled
        weight = self._affine(t.parameter, "weight")
        return f"{weight} * {text if t.factor == 1 else f'({scaled})'}"

    def _mapped(self, t: Term, shape: tuple[int, ...], text: str) -> str:
        """Return the text of a matrix times an atom: a number for each row of a scalar, or a product."""
        matrix, atom = t.matrix, t.atom
        if not atom.shape:
            return f"{self._array(matrix.toarray().reshape(shape), 'weights')} * {text}"
        if not shape and (matrix.toarray() == 1).all():
            return f"sum({text})"
        if not shape and len(atom.shape) == 1:
            return f"{self._array(matrix.toarray()[0], 'map')} @ {text}"
        if len(shape) == len(atom.shape) == 1:
            return f"{self._sparse(matrix, 'map')} @ {text}"
        return f"linear_map({self._sparse(matrix, 'map')}, {text}{f', shape={list(shape)}' if shape else ''})"

    def _sparse(self, matrix: Any, name: str) -> str:
        """Return the name of a sparse matrix."""
        name = self._free(name)
        self._expressions[name] = self._plain.value(matrix, name)
        return name

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Modulus):
            return f"{atom.name}({self._named_data(atom.z, 'argument')})"
        arguments = [self._argument(a, getattr(atom, "copies", 1)) for a in atom.arguments]
        own = ("arguments", "shape", "copies")
        more = [name for name in signature(type(atom)).parameters if name not in own]
        arguments += [repr(getattr(atom, name)) for name in more if hasattr(atom, name)]
        return f"{atom.name}({', '.join(arguments)})"

    def _argument(self, a: Any, copies: int) -> str:
        """Return the text of an argument of an atom; of a real form that of the complex matrix."""
        if copies == 1 or isinstance(a, PSD):
            return self._curved(a, "argument")
        p, q = (size // copies for size in a.shape)
        return self._named_data(ComplexExpression(a[:p, :q], a[p:, :q], a.label), "argument")

    def _divergence(self, t: DivergenceAtom) -> str:
        X, n = self._names[t.X], t.X.whole.n
        center: Any = t.X0
        arguments = [X, self._matrix(t.X.of_block(center), f"X0_{X}")]
        parameters = t.parameters
        if t.X.whole.is_hermitian:  # whose weights are those of the real form
            parameters = {key: part[:n, :n] for key, part in parameters.items()}
        own = DIVERGENCES[t.divergence] in BUILT_IN and parameters.keys() <= {"weights"}
        arguments += [] if own else [f'divergence="{t.divergence}"']
        arguments += [f"{key}={self._matrix(part, f'{key}_{X}')}" for key, part in parameters.items()]
        arguments += [f"{key}={float(value)!r}" for key, value in t.options.items()]
        return f"{t.divergence if own else 'bregman'}_div({', '.join(arguments)})"

    def _matrix(self, value: Any, name: str) -> str:
        """Return the text of numbers that a divergence takes."""
        if isinstance(value, LowRank):
            return f"LowRank({self._array(value.factor, name)})"
        if isinstance(value, Operand):
            return self._affine(value.expression(), name)
        return repr(value) if np.ndim(value) == 0 else self._array(np.asarray(value), name)

    def _constraint(self, k: int, c: Any) -> str:
        text = self._unnamed(k, c)
        axes = [_labels(axis) for axis in getattr(c, "axes", None) or ()]
        if axes and all(axis is not None for axis in axes):
            text = f"labeled({text}, {', '.join(self._array(axis, f'labels{k}') for axis in axes)})"
        return text if c.name is None else f"named({text}, name={json.dumps(c.name, ensure_ascii=False)})"

    def _unnamed(self, k: int, c: Any) -> str:
        """Return the text of a constraint without its name."""
        if isinstance(c, EigenvalueBound):
            cap = self._affine(c.cap, f"cap{k}") if isinstance(c.cap, Operand) else repr(c.cap)
            return f"lambda_max({self._names[c.X]}) <= {cap}"
        if isinstance(c, ConvexConstraint) and not self._means(c.label, c):
            return f"{self._curved(c.body, f'body{k}')} <= 0.0"
        if type(c) is not Constraint:
            return c.label if self._means(c.label, c) else self._named_data(c, f"constraint{k}")
        text = self._comparison(k, c)
        if c.penalty is None:
            return text
        gamma, name = c.penalty.gamma, f"gamma{k}"
        if isinstance(gamma, Operand):
            weight: Any = self._affine(gamma.expression(), name)
        else:
            weight = self._numbers(gamma.reshape(c.shape), name)
        kind = "" if c.penalty.kind is None else f', penalty="{c.penalty.kind}"'
        return f"soft({text}, gamma={weight}{kind})"

    def _comparison(self, k: int, c: Constraint) -> str:
        body = self._affine(c.body, f"rows{k}")
        if c.sense == "between":
            lower, upper = self._bound(c.lower, f"lower{k}"), self._bound(c.upper, f"upper{k}")
            return f"between({body}, {lower}, {upper})"
        end: Any = c.upper if c.lower is None else c.lower
        if c.mirrored:  # only an expression may be on the left
            return f"{self._affine(end, f'bound{k}', bound=True)} {_MIRRORED[c.sense]} {body}"
        return f"{body} {c.sense} {self._bound(end, f'bound{k}')}"

    def _bound(self, end: Any, name: str) -> str:
        if end.operands("parameters"):
            return self._affine(end, name, bound=True)
        return str(self._numbers(end.constant.reshape(end.shape), name))

    def _affine(self, e: Affine, name: str, bound: bool = False) -> str:
        """Return a text that means exactly this expression: its label, the name of a parameter, or a name.

        A bound is broadcast to the rows when it is read, so its text may mean an array of another shape.
        """
        for text in (e.label, *(self._names[p] for p in e.operands("parameters"))):
            if self._means(text, e, e.shape if bound else None):
                return text
        return self._named_data(e, name)

    def _means(self, text: str, item: Any, shape: tuple[int, ...] | None = None) -> bool:
        """Whether a text means an object, after broadcasting to a shape where one is given."""
        try:
            meant = evaluate(text, self._operands)
            meant = meant.expression() if isinstance(meant, Operand) else meant
            return same_data(meant if shape is None else meant.broadcast_to(shape), item)
        except (AttributeError, TypeError, ValueError):  # most labels are no expressions
            return False

    def _named_data(self, item: Any, name: str) -> str:
        """Return the name of an object whose plain data are written."""
        name = self._free(name)
        kind = {} if isinstance(item, Affine) else {"class": type(item).__name__}
        self._expressions[name] = {**kind, **_dotted(self._plain.table(item, name))}
        return name

    def _free(self, name: str) -> str:
        """Return a name that nothing has yet."""
        given = (self._operands, self.arrays, self._expressions)
        while any(name in names for names in given) or not is_name(name):
            name += "_"
        return name


def _kind(whole: ComplexOperand) -> dict[str, bool]:
    """Return the key that declares a complex operand."""
    return {"hermitian" if whole.is_hermitian else "complex": True}


def _named(operands: Sequence[PSD | HermitianPSD | ComplexOperand | Variable | Parameter]) -> dict[Any, str]:
    """Return a name for each operand: its own where it is one, and nobody else's."""
    names: dict[Any, str] = {}
    for operand in operands:
        if is_name(operand.name) and operand.name not in (*names.values(), *RESERVED):
            names[operand] = operand.name
    taken = {operand.name for operand in operands}
    for operand in operands:
        if operand not in names:
            free = (f"{type(operand).__name__}{k}" for k in itertools.count())
            names[operand] = next(name for name in free if name not in taken)
            taken.add(names[operand])
    return {operand: names[operand] for operand in operands}


def _labels(axis: Any) -> NDArray[Any] | None:
    """Return labels as an array of strings or of numbers, None if they are of another kind."""
    labels = list(axis)
    alike = {type(label) for label in labels} in ({str}, {int})
    return np.array(labels) if alike else None


def _dotted(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with a line for each entry of a mapping by names, such as ``psd.X``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        mapping = isinstance(value, dict) and not RESERVED & set(value)
        flat |= {f"{key}.{name}": part for name, part in value.items()} if mapping else {key: value}
    return flat


def _toml_text(document: Mapping[str, Any]) -> str:
    """Return a document as TOML: plain values first, then a table for each value that is a mapping.

    Parameters
    ----------
    document : mapping from str
        Finite numbers, strings, lists and mappings. A key with dots stands for nested tables.
    """
    plain = {key: value for key, value in document.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, table in document.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{key}]", *(f"{name} = {_value(part)}" for name, part in table.items())]
    return "\n".join([*lines, ""]).lstrip()


def _value(value: Any) -> str:
    """Return a value as TOML: the JSON text of numbers and strings is also TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return "\n".join(["[", *(f"  {_value(part)}," for part in value), "]"])
    if isinstance(value, list):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
