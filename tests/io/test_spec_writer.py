"""Problems written as specs and read again: the same program, bit by bit, and readable text."""

import dataclasses
import json
import re
import tomllib
import warnings
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt.divergences import LogDet, register_divergence
from bregopt.io import spec as spec_module
from bregopt.io.serialization import CLASSES, PlainReader, PlainWriter, same_data
from bregopt.modeling.problem import Declared
from bregopt.program.rows import FAMILIES

SCHEMA = json.loads(Path(spec_module.__file__).with_name("spec.schema.json").read_text(encoding="utf-8"))


def bits(value):
    """Return plain data in a form that compares bit by bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if sp.issparse(value):
        return (
            type(value).__name__,
            value.shape,
            *(bits(x) for x in (value.data, value.indices, value.indptr)),
        )
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, bo.LowRank):
        return "LowRank", bits(value.factor)
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if f.name != "reductions"]
        return type(value).__name__, {name: bits(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return [(key, bits(part)) for key, part in value.items()]
    return [bits(part) for part in value] if isinstance(value, tuple | list) else value


def again(problem, folder):
    """Return the problem that a written one is read as, after a comparison of the programs."""
    path = folder / "problem.toml"
    problem.to_spec(path)
    jsonschema.Draft202012Validator(SCHEMA).validate(tomllib.loads(path.read_text(encoding="utf-8")))
    twin = bo.load_spec(path).problem
    assert bits(twin.program()) == bits(problem.program())
    assert str(twin) == str(problem)
    return twin


# --- Random problems --------------------------------------------------------------------------------

NUMBER = st.floats(-4, 4, allow_subnormal=False)
NAMES = st.sampled_from(["Z", "a b", "diag", "lambda", "0", "é", 'q"\\\n', "Z_", "name"])


class Drawn:
    """A random declared problem."""

    def __init__(self, draw):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 10**6)))
        names = draw(st.lists(NAMES, min_size=5, max_size=5, unique=True))
        self.X, self.Y = bo.PSD(3, name=names[0]), bo.PSD(draw(st.integers(1, 4)), name=names[1])
        self.u = bo.Variable(2, lower=draw(st.sampled_from([None, -1.5, [0, -2]])), upper=5, name=names[2])
        self.v = bo.Variable(nonneg=draw(st.booleans()), name=names[3])
        self.w = bo.Variable((2, 2), name=names[4])
        self.t = bo.Parameter(value=draw(st.floats(0.5, 2)), name=draw(NAMES))
        self.g = bo.Parameter(2, value=self.rng.uniform(0.5, 2, 2), name="g")
        self.P0 = bo.Parameter((3, 3), value=self.symmetric(3, 1)[0], name="P0")
        self.w0 = self.rng.normal(size=(2, 2))

    def symmetric(self, n, m):
        A = self.rng.normal(size=(m, n, n))
        return A + A.transpose(0, 2, 1)

    def rows(self):
        """Return an expression of shape (2,)."""
        X = self.draw(st.sampled_from([self.X, self.Y, self.X]))
        i, j = self.rng.integers(X.n, size=(2, 2))
        kinds = {
            "entries": lambda: X[i, j],
            "distances": lambda: bo.sq_distance(self.X, [0, 1], [2, 2]),
            "rank_one": lambda: bo.quad_form(self.rng.normal(size=(2, X.n)), X),
            "sparse rank_one": lambda: bo.quad_form(sp.csr_array(np.eye(4)[:2, : X.n]), X),
            "rank_two": lambda: bo.quad_form(np.eye(3)[:2], self.X) - bo.sq_distance(self.X, [0, 1], [1, 2]),
            "dense": lambda: bo.inner(self.symmetric(X.n, 2), X),
            "sparse": lambda: bo.inner([sp.csr_array(np.eye(X.n)), sp.csr_array((X.n, X.n))], X),
            "diagonal": lambda: bo.diag(self.X)[:2],
            "product": lambda: self.rng.normal(size=(2, X.n)) @ X @ self.rng.normal(size=X.n),
            "parameter": lambda: self.t * X[i, j] - 2 * self.g * self.u,
            "trace": lambda: bo.trace(X) + np.zeros(2),
            "ordinary": lambda: self.w[0] - self.rng.normal(size=(2, 2)) @ self.u,
            "scalar": lambda: self.v * [1.0, 0.0] + bo.sum(X),
        }
        return kinds[self.draw(st.sampled_from(sorted(kinds)))]()

    def expression(self):
        e = self.rows()
        for _ in range(self.draw(st.integers(0, 2))):
            e = e + self.draw(NUMBER) * self.rows()
        if self.draw(st.booleans()):
            e = e + self.draw(st.sampled_from([self.t, self.g, 1.25, 2 * self.g[0]]))
        return e

    def constraint(self):
        e, X0 = self.expression(), self.symmetric(3, 1)[0]
        bound = self.draw(st.sampled_from([1, -0.0, np.array([1.5, -3]), self.t, self.g, 3 * self.t - 1]))
        kinds = {
            "<=": lambda: e <= bound,
            ">=": lambda: e >= bound,
            "==": lambda: e == bound,
            "left <=": lambda: bound <= e,
            "left ==": lambda: bo.sum([1.0, 2.0]) == e,
            "expressions": lambda: e <= self.expression() + self.v,
            "scalar": lambda: bo.trace(self.X) >= 0.5,
            "matrix": lambda: self.w == 0.25,
            "between": lambda: bo.between(
                e, -5, self.draw(st.sampled_from([7, self.t, np.array([4.0, 5.0])]))
            ),
            "soft": lambda: bo.soft(e <= bound, self.draw(st.sampled_from([2.0, [1.0, 2], self.g])), "hinge"),
            "cap": lambda: bo.lambda_max(self.Y) <= self.draw(st.floats(0.1, 9)),
            "inequality": lambda: self.X >> self.draw(st.sampled_from([X0, self.t * np.eye(3)])),
            "ordered": lambda: self.w @ self.w0.T + self.w0 @ self.w.T << 2 * np.eye(2),
            "norm": lambda: bo.norm2(e) <= self.v + 1,
            "squares": lambda: bo.sum_squares(e) <= self.draw(st.sampled_from([2.0, self.t, self.v])),
        }
        return kinds[self.draw(st.sampled_from(sorted(kinds)))]()

    def objective(self):
        X0, H = self.symmetric(3, 2)
        Y0 = np.eye(self.Y.n) + np.ones((self.Y.n, self.Y.n)) / 3
        terms = {
            "frobenius": lambda: self.draw(st.floats(0.1, 3)) * bo.frobenius_div(self.X, X0),
            "parametric": lambda: (2 * self.t + 1) * bo.frobenius_div(self.X, self.P0),
            "weighted": lambda: bo.frobenius_div(self.X, X0, weights=np.abs(H)),
            "logdet": lambda: self.t * (0.5 * bo.logdet_div(self.Y, Y0)),
            "low rank": lambda: bo.von_neumann_div(self.Y, bo.LowRank(Y0[:, :1])),
            "weighed squares": lambda: self.t * bo.sum_squares(self.rows()),
            "squares": lambda: 2 * bo.sum_squares(self.expression()),
            "affine": lambda: bo.sum(self.expression()) + self.draw(NUMBER),
            "nothing": lambda: 1.5,
        }
        chosen = self.draw(st.lists(st.sampled_from(sorted(terms)), min_size=1, max_size=4, unique=True))
        for group in (("frobenius", "weighted", "parametric"), ("logdet", "low rank")):
            for name in [name for name in chosen if name in group][1:]:
                chosen.remove(name)
        if self.draw(st.booleans()):
            return bo.Minimize(sum((terms[name]() for name in chosen), 0.0))
        total = -bo.trace(self.X)
        for name in chosen:
            total = total - terms[name]()
        return bo.Maximize(total)

    def problem(self):
        rows = [self.constraint() for _ in range(self.draw(st.integers(0, 4)))]
        for k, row in enumerate(rows[: self.draw(st.integers(0, 2))]):
            row.named(f"{self.draw(NAMES)} {k}")
        return bo.Problem(self.objective(), [bo.diag(self.X) == 1, *rows])


@examples(15)
@given(data=st.data())
def test_problems_are_read_as_they_were(tmp_path_factory, data):
    again(Drawn(data.draw).problem(), tmp_path_factory.mktemp("spec"))


# --- The text ---------------------------------------------------------------------------------------


def test_texts_of_the_language_are_written_where_they_mean_the_same(tmp_path):
    X, u, t = bo.PSD(3, name="X"), bo.Variable(2, nonneg=True, name="u"), bo.Parameter(value=2.5, name="t")
    X0 = np.diag([1.0, 2, 3])
    rows = [bo.diag(X) == 1, t >= bo.trace(X), X[0, 1] >= [0.5, 0.25], bo.lambda_max(X) <= 3, u <= t]
    problem = bo.Problem(bo.Minimize(0.5 * bo.frobenius_div(X, X0) + bo.sum(u)), rows)
    twin = again(problem, tmp_path)
    document = tomllib.loads((tmp_path / "problem.toml").read_text(encoding="utf-8"))
    assert document["arrays"] == "problem.npz"
    assert document["parameters"] == {"t": 2.5}
    assert document["variables"] == {"X": {"psd": 3}, "u": {"shape": [2], "nonneg": True}}
    assert document["problem"] == {
        "minimize": "0.5 * frobenius_div(X, X0_X) + sum(u)",
        "subject_to": [
            "diag(X) == 1.0",
            "t >= trace(X)",
            "rows2 >= bound2",
            "lambda_max(X) <= 3.0",
            "u <= t",
        ],
    }
    assert list(document["expressions"]) == ["rows2"]
    assert document["expressions"]["rows2"]["label"] == "X[0, 1]"
    assert [p.name for p in twin.parameters] == ["t"]


def atoms():
    """Return an objective and constraints with every kind of atom and of linear map."""
    X, u, v, t = (
        bo.PSD(3, name="X"),
        bo.Variable(3, name="u"),
        bo.Variable(name="v"),
        bo.Parameter(value=2.0, name="t"),
    )
    d = np.array([1.0, 2.0, 3.0])
    return {
        "norms": (bo.norm1(u) + bo.trace(X), [bo.norm1(u - d) + bo.trace(X) <= v, bo.norm_inf(u) <= 3]),
        "nested": (
            bo.max(bo.abs(u - d)) + bo.trace(X),
            [bo.sum(bo.abs(u)) <= 3, bo.sum(d * bo.abs(u - 1)) <= 4],
        ),
        "log_det": (bo.trace(X) - bo.log_det(X), [bo.lambda_max(X - np.eye(3)) <= 3]),
        "parameter": (
            t * bo.norm1(u - d) + bo.frobenius_div(X, np.eye(3)),
            [bo.lambda_sum_largest(X, 2) <= 3],
        ),
        "several": (
            0.25 * bo.norm_inf(u),
            [bo.lambda_min(X) >= 0.1, bo.pos(u) <= d, bo.maximum(u, 2 * u - 1) <= d],
        ),
        "quadratic": (
            bo.trace(X),
            [bo.square(u) <= d, bo.quad_over_lin(u, v) <= bo.trace(X), bo.sum_squares(u - 1) <= 4],
        ),
        "maps": (bo.trace(X), [d * bo.abs(u) <= [1, 2, 3], bo.abs(u)[:2] <= 1, d * bo.norm1(u) <= d]),
    }


def numbers(problem):
    """Return the program without the names of variables that epigraphs add, which are counted."""
    text = repr(bits(dataclasses.replace(problem.program(), labels=(), columns=())))
    return re.sub(r"'[Xu]\d+(?=[',])", "'name", text)


@pytest.mark.parametrize("name", atoms())
def test_convex_atoms_are_written_in_the_language(tmp_path, name):
    objective, rows = atoms()[name]
    problem = bo.Problem(bo.Minimize(objective), rows)
    problem.to_spec(tmp_path / "a.toml")
    twin = bo.load_spec(tmp_path / "a.toml").problem
    assert numbers(twin) == numbers(problem)


def test_the_answer_is_the_same(tmp_path):
    X = bo.PSD(4, name="X")
    i, j = np.triu_indices(4, 1)
    A = np.random.default_rng(1).normal(size=(4, 4))
    near = bo.soft(bo.sq_distance(X, i, j) <= 1.2, np.arange(1.0, 7))
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, A @ A.T + np.eye(4))), [near, bo.trace(X) == 4])
    twin = again(problem, tmp_path)
    ours, theirs = problem.solve(), twin.solve()
    np.testing.assert_array_equal(ours.X, theirs.X)
    np.testing.assert_array_equal(ours.duals[0], theirs.duals[0])


def test_symmetric_variables_and_caps_of_parameters(tmp_path):
    low = np.array([[0.0, -1.0], [-1.0, 0.5]])
    X, S, p = (
        bo.PSD(2, name="X"),
        bo.Variable((2, 2), symmetric=True, lower=low, name="S"),
        bo.Parameter(name="p"),
    )
    p.value = 2.0
    goal = bo.frobenius_div(X, np.eye(2)) + bo.trace(S)
    twin = again(bo.Problem(bo.Minimize(goal), [bo.lambda_max(X) <= 2 * p, X[0, 1] + S[0, 1] >= 1]), tmp_path)
    assert twin.variables[0].symmetric
    twin.parameters[0].value = 3.0
    assert twin.program().blocks[0].cap == 6


def test_parameters_without_a_value_stay_without(tmp_path):
    X, t = bo.PSD(2, name="X"), bo.Parameter(2, name="t")
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) >= t])
    problem.to_spec(tmp_path / "a.toml")
    twin = bo.load_spec(tmp_path / "a.toml").problem
    assert twin.parameters[0].value is None
    twin.parameters[0].value = [1, 2]
    assert twin.solve().value == pytest.approx(3, abs=1e-5)
    given = bo.load_spec(tmp_path / "a.toml", parameters={"t": [2, 3]})
    assert given.solve().value == pytest.approx(5, abs=1e-5)


def test_a_complement_of_a_parameter_is_kept(tmp_path):
    X, P = bo.PSD(3, name="X"), bo.Parameter((3, 3), value=np.diag([1.0, 2.0, 0.0]), name="P")
    goal = bo.Minimize(bo.logdet_div(X, P, complement=0.25, rank_tol=1e-6))
    twin = again(bo.Problem(goal, [X[0, 1] == 0.5]), tmp_path)
    twin.parameters[0].value = np.diag([0.0, 2.0, 1.0])
    np.testing.assert_array_equal(twin.program().blocks[0].nearness.X0, np.diag([0.25, 2.0, 1.0]))


def test_plug_in_divergences_are_written_by_name(tmp_path):
    class Twice(LogDet):
        name = "twice_logdet"

    register_divergence(Twice)
    X = bo.PSD(2, name="X")
    again(bo.Problem(bo.Minimize(bo.bregman_div(X, np.eye(2), "twice_logdet")), [bo.trace(X) == 1]), tmp_path)
    assert 'bregman_div(X, X0_X, divergence=\\"twice_logdet\\")' in (tmp_path / "problem.toml").read_text()


def test_every_family_and_constraint_is_known():
    assert {family.__name__ for family in FAMILIES} <= set(CLASSES)
    in_text = {"Constraint", "ConvexConstraint", "EigenvalueBound"}
    refused = {"CutRows"}  # of a function
    assert {kind.__name__ for kind in Declared.__args__} - in_text - refused <= set(CLASSES)


class Largest:
    """A class of a new kind: any number of arguments, one more, and a label."""

    def __init__(self, *arguments: bo.Expression, k: int, label: str = "largest") -> None:
        self.arguments, self._k, self.label = arguments, k, label


def test_a_class_joins_with_its_line(monkeypatch):
    monkeypatch.setitem(CLASSES, "Largest", Largest)
    X, t, arrays = bo.PSD(2, name="X"), bo.Parameter(value=1.0, name="t"), {}
    given = Largest(bo.diag(X) + t, X[0, 1] * 2.5, k=2)
    table = PlainWriter({X: "X", t: "t"}, arrays).table(given, "c")
    assert set(table) == {"arguments", "k"}
    found = PlainReader({"X": X, "t": t}, arrays).item({"class": "Largest", **table})
    assert (found._k, found.label, len(found.arguments)) == (2, "largest", 2)
    assert same_data(found, given)
    assert not same_data(found, Largest(bo.diag(X) + t, X[0, 1] * 2.0, k=2))


def test_paths_of_other_kinds_are_refused(tmp_path):
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= 1])
    with pytest.raises(ValueError, match=r"expected a name that ends with \.toml"):
        problem.to_spec(tmp_path / "a.json")


# --- Damaged files ----------------------------------------------------------------------------------


def damaged(folder, old, new, **arrays):
    X, u = bo.PSD(3, name="X"), bo.Variable(2, name="u")
    rows = X[[0, 1], [1, 2]] + bo.inner([np.eye(3), np.ones((3, 3))], X) / 3 - u
    distances, norm = bo.sq_distance(X, [0, 1], [1, 2]), bo.norm2(2 * u - [1.0, 2.5]) <= bo.trace(X)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [rows >= [1, 2], distances <= [1, 2], norm])
    problem.to_spec(folder / "a.toml")
    text = (folder / "a.toml").read_text()
    assert old in text
    text = re.sub("^digest = .*\n", "", text, flags=re.MULTILINE)  # as in specs that people write
    (folder / "a.toml").write_text(text.replace(old, new, 1))
    with np.load(folder / "a.npz") as file:
        found = dict(file)
    assert set(arrays) <= set(found)
    np.savez(folder / "a.npz", **{**found, **arrays})
    return folder / "a.toml"


DAMAGES = {
    "class": (
        'class = "Distances"',
        'class = "Distance"',
        {},
        "class is 'Distance'; did you mean 'Distances'",
    ),
    "key": ("i = ", "k = ", {}, "unknown key 'k'"),
    "missing": (', j = "rows1.psd.X.j"', "", {}, "j is missing"),
    "array": ('"rows1.psd.X.j"', '"rows1.psd.X.k"', {}, "j: there is no array 'rows1.psd.X.k'"),
    "kind": ('i = "rows1.psd.X.i"', 'i = "bound0"', {}, "i has dtype float64; expected IntArray"),
    "order": ("n = 3, i", "n = 4, i", {}, r"the rows of X, \(rows, order\), has shape \(2, 4\)"),
    "order-kind": ("n = 3, i", "n = 3.0, i", {}, "n is 3.0; expected int"),
    "shape": ("shape = [2]\n", "shape = [3]\n", {}, r"constant has shape \(2,\); expected \(3,\)"),
    "shape-kind": ("shape = [2]\n", "shape = [2.0]\n", {}, "expected positive integers"),
    "operand": ("psd.X =", "psd.Y =", {}, "there is no variable or parameter 'Y'"),
    "operand-kind": ("variables.u", "variables.X", {}, "expected a sparse matrix of a Variable"),
    "index": ("", "", {"rows1.psd.X.i": np.array([0, 3])}, "i has 3; expected 0 to 2"),
    "negative": ("", "", {"rows1.psd.X.i": np.array([0, -1])}, "i has -1; expected 0 to 2"),
    "length": ("", "", {"rows1.psd.X.j": np.array([0])}, r"j has shape \(1,\); expected \(2,\)"),
    "nan": ("", "", {"rows0.variables.u.data": np.array([1, np.nan])}, "NaN or Inf"),
    "column": ("", "", {"rows0.variables.u.indices": np.array([0, 2], dtype=np.int32)}, "rows0: variables: "),
    "dimensions": (
        "",
        "",
        {"constraint2.dimensions": np.array([4])},
        r"dimensions are \[4\]; expected a sum of 3",
    ),
    "name": ('"constraint2",', '"X",', {}, "'X' is no constraint"),
    "file": ('arrays = "a.npz"', 'arrays = "../a.npz"', {}, "outside the spec's folder"),
    "file-kind": ('arrays = "a.npz"', 'arrays = "a.toml"', {}, "expected an .npz file"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_data_are_refused_by_key(tmp_path, name):
    old, new, arrays, message = DAMAGES[name]
    path = damaged(tmp_path, old, new, **arrays)
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        bo.load_spec(path)
    assert str(caught.value).startswith(str(path))


@examples(30)
@given(data=st.data())
def test_damaged_texts_are_read_or_refused(tmp_path_factory, data):
    path = damaged(tmp_path_factory.mktemp("damaged"), "", "")
    text = path.read_text()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        new = data.draw(
            st.sampled_from(["", "X", "u", "0", "3", "-1", '"', "[", "{", "}", "]", ".", "= 2\n", "true"])
        )
        text = text[:at] + new + text[at + data.draw(st.integers(0, 6)) :]
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem = bo.load_spec(path).problem
        except (ValueError, TypeError, FileNotFoundError) as error:
            refusal = error
        else:
            assert np.isfinite(problem.program().A.norms()).all()
            return
    assert str(refusal).startswith(str(path))
