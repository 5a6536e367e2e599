"""CBF files: read, refused by line, written, and solved."""

import gzip
import re
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, turns
from test_sdpa import linear_problem

import bregopt as bo
from bregopt import cli

# A psd matrix beside a second-order cone: the first small example of the reference manual of the format.
CONES = """\
# min <[2 1 0; 1 2 1; 0 1 2], X> + x1
VER
1

OBJSENSE
MIN

PSDVAR
1
3

VAR
3 1
F 3

CON
5 2
L= 2
Q 3

OBJFCOORD
5
0 0 0 2.0
0 1 0 1.0
0 1 1 2.0
0 2 1 1.0
0 2 2 2.0

OBJACOORD
1
1 1.0

FCOORD
9
0 0 0 0 1.0
0 0 1 1 1.0
0 0 2 2 1.0
1 0 0 0 1.0
1 0 1 0 1.0
1 0 2 0 1.0
1 0 1 1 1.0
1 0 2 1 1.0
1 0 2 2 1.0

ACOORD
6
0 1 1.0
1 0 1.0
1 2 1.0
2 1 1.0
3 0 1.0
4 2 1.0

BCOORD
2
0 -1.0
1 -0.5
"""

# A matrix constraint: the second one. With s = x0 + x1 the optimum has X = s/2 [1 1; 1 1], and the matrix
# is psd if 3 s/2 - 1 >= s, so that the least value 2 s + 1 is 5.
MATRIX_CONSTRAINT = """\
VER
2
OBJSENSE
MIN
PSDVAR
1
2
VAR
2 1
F 2
PSDCON
1
2
CON
1 1
L+ 1
OBJFCOORD
2
0 0 0 1.0
0 1 1 1.0
OBJACOORD
2
0 1.0
1 1.0
OBJBCOORD
1.0
FCOORD
1
0 0 1 0 1.0
ACOORD
2
0 0 -1.0
0 1 -1.0
HCOORD
4
0 0 1 0 1.0
0 0 1 1 3.0
0 1 0 0 3.0
0 1 1 0 1.0
DCOORD
2
0 0 0 -1.0
0 1 1 -1.0
"""

# min x0 + x1 with 2 x0 x1 >= x2^2 and x2 = X_00 >= 1, in the rotated cone, of scalars or of rows.
ROTATED = """\
VER
3
OBJSENSE
MIN
PSDVAR
1
1
VAR
3 1
QR 3
CON
2 2
L= 1
L+ 1
OBJACOORD
2
0 1
1 1
FCOORD
2
0 0 0 0 -1
1 0 0 0 1
ACOORD
1
0 2 1
BCOORD
1
1 -1
"""
ROTATED_ROWS = (ROTATED.replace("QR 3", "F 3").replace("2 2\nL= 1\nL+ 1", "5 3\nL= 1\nL+ 1\nQR 3")).replace(
    "1\n0 2 1\n", "4\n0 2 1\n2 0 1\n3 1 1\n4 2 1\n"
)


def written(folder, text, name="a.cbf"):
    path = folder / name
    path.write_text(text)
    return path


def solve(problem, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(solver="cvxpy", **options)


# --- Read and solved --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (CONES, 0.7057105),
        (CONES.replace("MIN", "MAX").replace("2.0\n", "-2.0\n").replace("1 1.0\n\nF", "1 -1.0\n\nF"), None),
        (MATRIX_CONSTRAINT, 5.0),
        (ROTATED, np.sqrt(2)),
        (ROTATED_ROWS, np.sqrt(2)),
    ],
    ids=["cones", "maximize", "matrix constraint", "rotated", "rotated rows"],
)
def test_small_examples_have_their_optimum(tmp_path, text, value):
    problem = bo.read_cbf(written(tmp_path, text))
    solution = problem.solve(tol=1e-8)
    assert solution.status == "optimal"
    if value is not None:
        assert solution.value == pytest.approx(value, abs=1e-6)
    bo.write_cbf(problem, tmp_path / "b.cbf")
    assert bo.read_cbf(tmp_path / "b.cbf").solve(tol=1e-8).value == pytest.approx(solution.value, abs=1e-6)


def test_names_are_numbers_of_the_file(tmp_path):
    text = CONES.replace("3 1\nF 3", "6 5\nF 1\nQ 2\nL+ 1\nL- 1\nL= 1").replace("5 2\nL= 2\nQ 3", "2 1\nL= 2")
    text = text[: text.index("ACOORD\n6")] + "ACOORD\n1\n1 5 2\n"
    problem = bo.read_cbf(written(tmp_path, text))
    assert [X.name for X in problem.matrices] == ["X0"]
    bounds = {u.name: (u.size, u.lower[0], u.upper[0]) for u in problem.variables}
    inf = np.inf
    assert bounds == {"x0": (3, -inf, inf), "x3": (1, 0, inf), "x4": (1, -inf, 0), "x5": (1, 0, 0)}
    assert [c.label for c in problem.constraints] == ["x[1:3] in Q", "CON[0:2] == 0"]
    program = problem.program()
    np.testing.assert_array_equal(program.cones.index, [1, 2])
    np.testing.assert_array_equal(program.B.toarray(), [[0] * 6, [0] * 5 + [2]])
    np.testing.assert_array_equal(program.blocks[0].C, [[2, 1, 0], [1, 2, 1], [0, 1, 2]])


def test_either_triangle_is_read(tmp_path):
    lower = bo.read_cbf(written(tmp_path, CONES)).program()
    upper = bo.read_cbf(written(tmp_path, CONES.replace("1 0 2 0 1.0", "1 0 0 2 1.0"))).program()
    np.testing.assert_array_equal(lower.A.adjoint(np.arange(2.0)), upper.A.adjoint(np.arange(2.0)))


def test_comments_blank_lines_and_ends_of_lines(tmp_path):
    text = CONES.replace("\n\n", "\n").replace("FCOORD\n", "FCOORD\n# nine\n\n  ").replace("\n", "\r\n")
    one, other = (bo.read_cbf(written(tmp_path, t)) for t in (CONES, text))
    for name, problem in (("b", one), ("c", other)):
        bo.write_cbf(problem, tmp_path / f"{name}.cbf")
    assert (tmp_path / "b.cbf").read_bytes() == (tmp_path / "c.cbf").read_bytes()


def test_gzip(tmp_path):
    (tmp_path / "a.cbf.gz").write_bytes(gzip.compress(CONES.encode()))
    problem = bo.read_cbf(tmp_path / "a.cbf.gz")
    for name in ("b.cbf", "b.cbf.gz", "c.cbf.gz"):
        bo.write_cbf(problem, tmp_path / name)
    assert gzip.decompress((tmp_path / "b.cbf.gz").read_bytes()) == (tmp_path / "b.cbf").read_bytes()
    assert (tmp_path / "b.cbf.gz").read_bytes() == (tmp_path / "c.cbf.gz").read_bytes()


# --- Random files -----------------------------------------------------------------------------------


@st.composite
def files(draw):
    """A random file with every kind of section, and its data, dense."""
    psd = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    matrices = draw(st.lists(st.integers(1, 3), max_size=2))
    kinds = st.tuples(st.sampled_from(["F", "L+", "L-", "L=", "Q", "QR"]), st.integers(2, 3))
    var, con = draw(st.lists(kinds, max_size=4)), draw(st.lists(kinds, max_size=4))
    k, m = sum(size for _, size in var), sum(size for _, size in con)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))

    def table(*shape):
        return rng.normal(size=shape) * (rng.random(shape) < 0.5)

    def symmetric(*shape):
        lower = np.tril(table(*shape))
        return lower + np.tril(lower, -1).swapaxes(-1, -2)

    cost = [symmetric(n, n) for n in psd]
    F = [symmetric(m, n, n) for n in psd]
    H, D = [symmetric(k, n, n) for n in matrices], [symmetric(n, n) for n in matrices]
    a, A, b, constant = table(k), table(m, k), table(m), float(rng.normal())

    def lower(matrix):
        return [(i, j) for i, j in zip(*np.nonzero(np.tril(matrix)), strict=True)]

    sections = {
        "OBJFCOORD": [(j, p, q, C[p, q]) for j, C in enumerate(cost) for p, q in lower(C)],
        "OBJACOORD": [(j, a[j]) for j in np.flatnonzero(a)],
        "FCOORD": [
            (i, j, p, q, S[i, p, q]) for j, S in enumerate(F) for i in range(m) for p, q in lower(S[i])
        ],
        "ACOORD": [(i, j, A[i, j]) for i, j in zip(*np.nonzero(A), strict=True)],
        "BCOORD": [(i, b[i]) for i in np.flatnonzero(b)],
        "HCOORD": [
            (i, j, p, q, S[j, p, q]) for i, S in enumerate(H) for j in range(k) for p, q in lower(S[j])
        ],
        "DCOORD": [(i, p, q, S[p, q]) for i, S in enumerate(D) for p, q in lower(S)],
    }
    lines = ["VER", "1", "OBJSENSE", draw(st.sampled_from(["MIN", "MAX"]))]
    for keyword, orders in (("PSDVAR", psd), ("PSDCON", matrices)):
        lines += [keyword, str(len(orders)), *map(str, orders)]
    for keyword, cones in (("VAR", var), ("CON", con)):
        total = sum(size for _, size in cones)
        lines += [keyword, f"{total} {len(cones)}", *(f"{kind} {size}" for kind, size in cones)]
    lines += ["OBJBCOORD", repr(constant)]
    for keyword, entries in sections.items():
        shuffled = [entries[place] for place in rng.permutation(len(entries))]
        lines += [keyword, str(len(entries)), *(" ".join(map(str, map(float, e))) for e in shuffled)]
    text = "\n".join(re.sub(r"(?<=\d)\.0(?= )", "", line) for line in lines) + "\n"
    return text, (cost, F, H, D, a, A, b, constant), (var, con)


def cone_violation(cones, x):
    """Return how far vectors are from their cones, by the definition of these."""
    worst, start = 0.0, 0
    for kind, size in cones:
        part = x[start : start + size]
        start += size
        outside = {
            "F": 0.0,
            "L+": max(-part.min(), 0),
            "L-": max(part.max(), 0),
            "L=": np.abs(part).max(),
            "Q": max(np.linalg.norm(part[1:]) - part[0], 0),
            "QR": max(np.dot(part[2:], part[2:]) - 2 * part[0] * part[1], -part[0], -part[1], 0),
        }
        worst = max(worst, outside[kind])
    return worst


@examples(20)
@given(drawn=files(), seed=st.integers(0, 99))
def test_files_mean_what_they_say(tmp_path_factory, drawn, seed):
    text, (cost, F, H, D, a, A, b, constant), (var, con) = drawn
    folder = tmp_path_factory.mktemp("cbf")
    problem = bo.read_cbf(written(folder, text))
    rng = np.random.default_rng(seed)
    X = [G @ G.T for G in (rng.normal(size=C.shape) for C in cost)]
    x = rng.normal(size=len(a))
    S = [np.tensordot(x, H_i, 1) + D_i for H_i, D_i in zip(H, D, strict=True)]
    for variable, value in zip(problem.matrices[: len(X)], X, strict=True):
        variable._value = value
    for variable in problem.matrices[len(X) :]:
        variable._value = S[int(variable.name[1:])]
    for u in problem.variables:
        place = int(u.name[1:])
        u._value = x[place : place + u.size]
    value = sum(np.vdot(C, P) for C, P in zip(cost, X, strict=True)) + a @ x + constant
    assert problem.objective.expression.value == pytest.approx(value, abs=1e-9)
    activity = A @ x + b + sum(np.tensordot(S_j, P, 2) for S_j, P in zip(F, X, strict=True))
    hard, cones = 0.0, 0.0
    for c in problem.constraints:
        body = np.ravel(c.body.value)
        if hasattr(c, "dimensions"):
            cones = max(cones, cone_violation([("Q", d) for d in c.dimensions], body))
        else:
            lo, hi = (
                np.ravel(end.value) if end is not None else default * np.ones(body.size)
                for end, default in ((c.lower, -np.inf), (c.upper, np.inf))
            )
            hard = max(hard, np.max(np.maximum(lo - body, body - hi), initial=0.0))
    linear = [("L+" if kind in ("Q", "QR") else kind, size) for kind, size in con]
    other = activity.copy()
    for place, (kind, size) in zip(np.cumsum([0, *(size for _, size in con)]), con, strict=False):
        if kind in ("Q", "QR"):
            other[place : place + size] = 0.0
    assert hard == pytest.approx(cone_violation(linear, other), abs=1e-9)
    curved = [(kind if kind in ("Q", "QR") else "F", size) for kind, size in (*var, *con)]
    assert (cones > 1e-9) == (cone_violation(curved, np.concatenate([x, activity])) > 1e-9)


@examples(20)
@given(drawn=files())
def test_what_is_written_is_read_as_it_was(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("cbf")
    problem = bo.read_cbf(written(folder, drawn[0]))
    first, second = folder / "first.cbf", folder / "second.cbf"
    bo.write_cbf(problem, first)
    again = bo.read_cbf(first)
    bo.write_cbf(again, second)
    assert first.read_bytes() == second.read_bytes()


# --- Written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sense", "seed"), turns([bo.Minimize, bo.Maximize], range(3)))
def test_every_row_and_box_can_be_written(tmp_path, sense, seed):
    problem = linear_problem(np.random.default_rng(seed), sense)
    bo.write_cbf(problem, tmp_path / "a.cbf")
    expected, found = solve(problem), solve(bo.read_cbf(tmp_path / "a.cbf"))
    assert found.value == pytest.approx(expected.value, rel=1e-5)


def test_cones_can_be_written(tmp_path):
    S, c, r = bo.PSD(2), bo.Variable(2), bo.Variable(upper=9)
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    rows = [*(bo.norm2(c - p) <= r for p in corners), S[0, 1] == 1, bo.sum_squares(c) <= 7]
    problem = bo.Problem(bo.Minimize(r + bo.trace(S)), rows)
    bo.write_cbf(problem, tmp_path / "a.cbf")
    assert bo.read_cbf(tmp_path / "a.cbf").solve(tol=1e-8).value == pytest.approx(4.5, abs=1e-6)


@pytest.mark.parametrize("name", ["truss1", "control1", "theta1"])
def test_sdpa_files_keep_their_optimum(data, tmp_path, name):
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    bo.write_cbf(problem, tmp_path / "a.cbf.gz")
    again = bo.read_cbf(tmp_path / "a.cbf.gz")
    ours, theirs = problem.program(), again.program()
    assert ours.m == theirs.m
    y = np.random.default_rng(0).normal(size=ours.m)
    for b, block in enumerate(ours.blocks):
        np.testing.assert_array_equal(block.C, theirs.blocks[b].C)
        np.testing.assert_allclose(ours.A.adjoint(y, b), theirs.A.adjoint(y, b), rtol=1e-12, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        value, expected = (p.solve(solver="path", tol=1e-6).value for p in (again, problem))
    assert value == pytest.approx(expected, rel=3e-6)


def test_what_is_not_linear_is_refused_by_name(tmp_path):
    X = bo.PSD(2, name="X")
    near, trace = bo.frobenius_div(X, np.eye(2)), bo.trace(X)
    refused = {
        "frobenius divergence of X; a CBF file": bo.Problem(bo.Minimize(near), [trace == 1]),
        "lambda_max(X) <= 2 is no row; a CBF file": bo.Problem(bo.Minimize(trace), [bo.lambda_max(X) <= 2]),
        "is soft; a CBF file": bo.Problem(bo.Minimize(trace), [bo.soft(X[0, 0] >= 1)]),
    }
    for message, problem in refused.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            bo.write_cbf(problem, tmp_path / "a.cbf")
    assert not list(tmp_path.iterdir())


# --- Bad files --------------------------------------------------------------------------------------

HEAD = "VER\n1\nOBJSENSE\nMIN\nPSDVAR\n1\n2\nVAR\n2 1\nF 2\nCON\n2 1\nL+ 2\n"  # 13 lines
BAD = {
    "empty": ("\n# nothing\n", None, "is empty"),
    "other": ("<html>\n", 1, "'<html>'"),
    "keyword": (HEAD + "FCORD\n", 14, "'FCORD'; expected a keyword; did you mean 'FCOORD'"),
    "first": ("OBJSENSE\nMIN\n", 1, "'OBJSENSE'; expected VER first"),
    "twice": (HEAD + "VAR\n1 1\nF 1\n", 14, "VAR as on line 8; expected it once"),
    "version": ("VER\n5\n", 2, "version 5; expected 1 to 4"),
    "version-word": ("VER\none\n", 2, "'one'; expected the version"),
    "version-two": ("VER\n1 2\n", 2, "'1 2'; expected the version"),
    "version-end": ("VER\n", 1, "the file ends here; expected the version after it"),
    "sense": ("VER\n1\nOBJSENSE\nMINIMIZE\n", 4, "'MINIMIZE'; expected MIN or MAX"),
    "integers": (HEAD + "INT\n1\n0\n", 14, "INT: integer variables, which are not convex"),
    "change": (HEAD + "CHANGE\n", 14, "CHANGE: a second instance"),
    "power": ("VER\n2\nPOWCONES\n1 2\n", 3, "POWCONES: power cones"),
    "order": ("VER\n1\nPSDVAR\n1\n0\n", 5, "0; expected the order of a matrix of PSDVAR, 1 to"),
    "orders": ("VER\n1\nPSDVAR\n3\n1\n1\n", 4, "3 lines, but 2 follow in the file"),
    "cone": (HEAD.replace("F 2", "EXP 2"), 10, "the cone EXP; expected one of F, L+, L-, L=, Q, QR"),
    "cone-size": (HEAD.replace("F 2", "F"), 10, "'F'; expected a cone of VAR and its size"),
    "cone-sign": (HEAD.replace("F 2", "F -2"), 10, "'F -2'; expected a cone of VAR and its size"),
    "cone-small": (HEAD.replace("F 2", "QR 1"), 10, "a cone QR of size 1; expected at least 2"),
    "cone-sum": (HEAD.replace("F 2", "F 3"), 9, "VAR has the size 2, but its cones 3"),
    "count": (HEAD + "ACOORD\n2\n0 0 1\n", 15, "2 lines, but 1 follow in the file"),
    "count-sign": (HEAD + "ACOORD\n-1\n", 15, "-1; expected the number of entries of ACOORD, 0 to"),
    "count-huge": (HEAD + "ACOORD\n1e300\n0 0 1\n", 15, "expected the number of entries of ACOORD, 0 to"),
    "more": (HEAD + "ACOORD\n1\n0 0 1\n0 1 1\n", 17, "'0 1 1'; expected a keyword. Known: "),
    "words": (HEAD + "ACOORD\n1\n0 1\n", 16, "2 words; expected 3 numbers: con, var and value"),
    "number": (HEAD + "BCOORD\n1\n0 1.O\n", 16, "'1.O'; expected a number"),
    "fraction": (HEAD + "BCOORD\n1\n0.5 1\n", 16, "'0.5 1' has an index that is no integer"),
    "nan": (HEAD + "BCOORD\n1\n0 nan\n", 16, "'0 nan' has numbers that are not finite or too large"),
    "large": (HEAD + "BCOORD\n1\n0 1e99\n", 16, "not finite or too large"),
    "constant": (HEAD + "OBJBCOORD\ninf\n", 15, "inf; expected a finite number"),
    "constant-two": (HEAD + "OBJBCOORD\n1 2\n", 15, "2 words; expected 1 number"),
    "con": (HEAD + "BCOORD\n2\n0 1\n2 1\n", 17, "'2 1' has con 2; expected 0 to 1"),
    "var": (HEAD + "OBJACOORD\n1\n-1 1\n", 16, "'-1 1' has var -1; expected 0 to 1"),
    "psd": (HEAD + "OBJFCOORD\n1\n1 0 0 1\n", 16, "'1 0 0 1' has psd 1; expected 0 to 0"),
    "place": (HEAD + "FCOORD\n1\n0 0 2 0 1\n", 16, "'0 0 2 0 1' has row 2; expected 0 to 1"),
    "matrix": (HEAD + "DCOORD\n1\n0 0 0 1\n", 16, "'0 0 0 1' has con 0; expected none"),
    "again": (HEAD + "BCOORD\n3\n0 1\n1 1\n0 1\n", 18, "'0 1' has a place that a line before it has"),
    "mirror": (HEAD + "FCOORD\n2\n0 0 1 0 1\n0 0 0 1 1\n", 17, "a place that a line before it has"),
    "no-matrix": ("VER\n1\nVAR\n1 1\nF 1\n", None, "has no matrix; expected PSDVAR or PSDCON"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_line(tmp_path, capsys, name):
    text, line, message = BAD[name]
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        bo.read_cbf(path)
    assert str(caught.value).startswith(str(path) if line is None else f"{path}, line {line}: ")
    assert cli.main(["solve", str(path)]) == 2
    assert capsys.readouterr().err == f"bregopt: error: {caught.value}\n"


SIZES = {
    "matrix": "VER\n1\nPSDVAR\n1\n{n}\n",
    "scalars": "VER\n1\nPSDVAR\n1\n2\nVAR\n{n}00 1\nF {n}00\n",
    "rows": "VER\n1\nPSDVAR\n1\n2\nCON\n{n}00 1\nL= {n}00\n",
    "constraint": "VER\n1\nPSDCON\n1\n{n}\n",
}


@pytest.mark.parametrize("n", [10**11, 10**13, 10**30])
@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_memory_does_not_hold_are_refused_with_the_number(tmp_path, name, n):
    path = written(tmp_path, SIZES[name].format(n=n))
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"it would need [\d.e+]+ GB of memory|0 to|1 to|2147483647"
    ) as caught:
        bo.read_cbf(path)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}, line ")


def test_no_file_and_no_gzip(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.cbf: no such file"):
        bo.read_cbf(tmp_path / "none.cbf")
    with pytest.raises(ValueError, match=r"a\.cbf\.gz cannot be read as gzip"):
        bo.read_cbf(written(tmp_path, CONES, "a.cbf.gz"))


@examples(50)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, data):
    text = data.draw(st.sampled_from([CONES, MATRIX_CONSTRAINT, ROTATED]))
    for _ in range(data.draw(st.integers(1, 3))):
        at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 4))
        new = data.draw(st.text("0123456789-+.eE \nFLQR=#xnaif\x00\xe9", max_size=3))
        text = text[:at] + new + text[at + cut :]
    path = tmp_path_factory.mktemp("damaged") / "a.cbf"
    path.write_bytes(text.encode("latin-1"))
    try:
        problem = bo.read_cbf(path)
    except ValueError as error:
        refusal = error
    else:
        assert np.isfinite(problem.program().A.norms()).all()
        return
    assert str(refusal).startswith(str(path))


def test_the_command_line_takes_files(tmp_path, capsys):
    path = written(tmp_path, CONES)
    assert cli.main(["solve", str(path), "--tol", "1e-8"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a.cbf: 2 rows, 1 matrix of order 3, 3 scalars, second-order cones: 1\n")
    assert "0.70571" in out
    (tmp_path / "b.cbf.gz").write_bytes(gzip.compress(MATRIX_CONSTRAINT.encode()))
    assert cli.main(["explain", str(tmp_path / "b.cbf.gz")]) == 0
    assert "-> path" in capsys.readouterr().out


@pytest.mark.parametrize("path", [b"a.cbf", None, 3.5, np.eye(2)])
def test_a_path_of_another_type_is_named(path):
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 1])
    writers = (problem.to_spec, *(partial(write, problem) for write in (bo.write_cbf, bo.write_sdpa)))
    for call in (*writers, bo.read_cbf, bo.read_sdpa, bo.load_spec):
        with pytest.raises(TypeError, match=r"(?s)path is .*; expected a str or a Path"):
            call(path)
