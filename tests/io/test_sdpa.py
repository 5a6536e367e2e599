"""SDPA sparse files: reading, writing, DIMACS errors, and refusals that name the wrong line."""

import gzip
import json
import re
import shutil
import subprocess
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo
from bregopt import cli

# Two matrices, a diagonal block between them, a block of size one; the comments and the punctuation of SDPA.
EXAMPLE = """"Example, {not read}
*another comment
 2 = mDIM
 4 = nBLOCK
 (2, -3, 3, 1) = bLOCKsTRUCT
{1.5, -2e0}
0 1 1 2 +0.5
0 2 2 2 -1
{0, 3, 3, 3, 4}
1,1,1,1,1
1 1 2 1 0.25

1 2 3 3 7
2 3 1 3 -3
2 4 1 1 5.5
1 3 2 2 1
"""


def written(folder, text, name="a.dat-s"):
    path = folder / name
    path.write_text(text)
    return path


def matrices_of(text):
    """Return c and the F_k, block by block and dense, from a file without comments or punctuation."""
    lines = [line.split() for line in text.splitlines()]
    m, sizes, c = int(lines[0][0]), [abs(int(s)) for s in lines[2]], [float(x) for x in lines[3]]
    F = [[np.zeros((n, n)) for n in sizes] for _ in range(m + 1)]
    for k, b, i, j, value in lines[4:]:
        A = F[int(k)][int(b) - 1]
        A[int(i) - 1, int(j) - 1] = A[int(j) - 1, int(i) - 1] = float(value)
    return np.array(c), F


def solve(problem, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(solver="cvxpy", **options)


# --- Read -------------------------------------------------------------------------------------------


def test_blocks_become_variables_and_rows_one_constraint(tmp_path):
    problem = bo.read_sdpa(written(tmp_path, EXAMPLE))
    assert [(X.name, X.n) for X in problem.matrices] == [("X1", 2), ("X3", 3)]
    assert [(u.name, u.size) for u in problem.variables] == [("u2", 3), ("u4", 1)]
    assert all((u.lower == 0).all() for u in problem.variables)
    assert len(problem.constraints) == 1
    program = problem.program()
    assert program.maximize
    np.testing.assert_array_equal(program.bounds.lo, [1.5, -2])
    np.testing.assert_array_equal(program.bounds.hi, [1.5, -2])
    np.testing.assert_array_equal(-program.blocks[0].C, [[0, 0.5], [0.5, 0]])
    np.testing.assert_array_equal(-program.blocks[1].C, np.diag([0, 0, 4]))
    np.testing.assert_array_equal(-program.c, [0, -1, 0, 0])
    np.testing.assert_array_equal(program.B.toarray(), [[0, 0, 7, 0], [0, 0, 0, 5.5]])
    np.testing.assert_array_equal(program.A.adjoint(np.array([1.0, 0])), [[1, 0.25], [0.25, 0]])
    np.testing.assert_array_equal(
        program.A.adjoint(np.array([0, 1.0]), 1), [[0, 0, -3], [0, 0, 0], [-3, 0, 0]]
    )


def test_terms_hold_the_rows_that_mention_their_block(tmp_path):
    program = bo.read_sdpa(written(tmp_path, EXAMPLE)).program()
    assert {term.block: term.at.tolist() for term in program.A.terms} == {0: [0], 1: [0, 1]}


def test_blocks_that_nothing_mentions_are_there(tmp_path):
    problem = bo.read_sdpa(written(tmp_path, "1\n3\n2 3 -2\n1\n1 2 1 1 1\n"))
    assert [X.n for X in problem.matrices] == [2, 3]
    assert problem.variables[0].size == 2
    bo.write_sdpa(problem, tmp_path / "b.dat-s")
    assert (tmp_path / "b.dat-s").read_text() == "1\n3\n2 3 -2\n1.0\n1 2 1 1 1.0\n"


def test_header_may_take_several_lines(tmp_path):
    text = EXAMPLE.replace("(2, -3, 3, 1)", "2, -3\n\n3 1").replace("1.5, -2e0", "1.5,\r\n-2e0")
    problem, same = bo.read_sdpa(written(tmp_path, text)), bo.read_sdpa(written(tmp_path, EXAMPLE))
    for name, p in (("b", problem), ("c", same)):
        bo.write_sdpa(p, tmp_path / f"{name}.dat-s")
    assert (tmp_path / "b.dat-s").read_text() == (tmp_path / "c.dat-s").read_text()


HEAD = "2\n2\n2 -2\n1 1\n"


@pytest.mark.parametrize("entries", ["0 1 2 1 3\n", "0 1 1 2 3\n0 1 2 1 3\n", "0 1 1 2 3\n0 1 1 2 3.0\n"])
def test_mirrored_and_equal_entries_count_once(tmp_path, entries):
    problem = bo.read_sdpa(written(tmp_path, HEAD + entries))
    np.testing.assert_array_equal(-problem.program().blocks[0].C, [[0, 3], [3, 0]])


def test_gzip(tmp_path):
    plain, packed = written(tmp_path, EXAMPLE), tmp_path / "a.dat-s.gz"
    packed.write_bytes(gzip.compress(EXAMPLE.encode()))
    for source, target in ((plain, "b.dat-s"), (packed, "c.dat-s.gz"), (packed, "d.dat-s.gz")):
        bo.write_sdpa(bo.read_sdpa(source), tmp_path / target)
    assert gzip.decompress((tmp_path / "c.dat-s.gz").read_bytes()) == (tmp_path / "b.dat-s").read_bytes()
    assert (tmp_path / "c.dat-s.gz").read_bytes() == (tmp_path / "d.dat-s.gz").read_bytes()


def test_a_hundred_thousand_entries_are_quick(tmp_path, rng):
    places = np.unravel_index(rng.choice(1000 * 400 * 400, 200_000, replace=False), (1000, 400, 400))
    lines = [f"{k + 1} 1 {i + 1} {j + 1} {i + j}.5" for k, i, j in zip(*places, strict=True) if i <= j]
    path = written(tmp_path, "\n".join(["1000", "1", "400", "1 " * 1000, *lines]))
    start = time.perf_counter()
    problem = bo.read_sdpa(path)
    assert time.perf_counter() - start < 3.0  # 0.25 s on a quiet machine
    assert sum(len(term.rows.terms.value) for term in problem.program().A.terms) == len(lines) > 90_000


# --- Bad files --------------------------------------------------------------------------------------

BAD = {
    "empty": ("", None, "is empty"),
    "blank": ("\n \n", None, "is empty"),
    "comments": ('"only\n"comments\n', 2, "the file ends after 0 numbers"),
    "other": ("<html>\n", 1, "'<html>' after 0 numbers; expected the number of constraints"),
    "m-zero": ("0\n1\n2\n1\n1 1 1 1 1\n", 1, "the number of constraints is 0; expected at least 1"),
    "m-part": ("1.5\n1\n2\n1\n1 1 1 1 1\n", 1, "1.5; expected integers for the number of constraints"),
    "m-two": ("1 2\n1\n2\n1\n1 1 1 1 1\n", 1, "'2' after 1 numbers"),
    "m-inf": ("inf\n1\n2\n1\n1 1 1 1 1\n", 1, "'inf'; expected finite numbers"),
    "blocks": ("1\n-1\n2\n1\n1 1 1 1 1\n", 2, "the number of blocks is -1; expected at least 1"),
    "size-zero": ("1\n2\n2 0\n1\n1 1 1 1 1\n", 3, "the size of block 2 is 0"),
    "size-part": ("1\n2\n2 2.5\n1\n1 1 1 1 1\n", 3, "2.5; expected integers for the sizes of 2 blocks"),
    "size-word": ("1\n2\n2 x\n1\n1 1 1 1 1\n", 3, "'x' after 1 numbers; expected the sizes of 2 blocks"),
    "size-more": ("1\n1\n2 2\n1\n1 1 1 1 1\n", 3, "'2' after 1 numbers; expected the sizes of 1 blocks"),
    "size-fewer": ("3\n2\n2\n1 1 1\n1 1 1 1 1\n", 4, "'1' after 2 numbers; expected the sizes of 2 blocks"),
    "linear": ("1\n2\n-2 1\n1\n1 1 1 1 1\n", 3, "all blocks are diagonal: a linear program"),
    "c-word": ("2\n1\n2\n1 one\n1 1 1 1 1\n", 4, "'one' after 1 numbers; expected the 2 numbers of c"),
    "c-nan": ("2\n1\n2\n1 nan\n1 1 1 1 1\n", 4, "'nan'; expected finite numbers for the 2 numbers of c"),
    "c-more": ("2\n1\n2\n1 1 1\n1 1 1 1 1\n", 4, "'1' after 2 numbers; expected the 2 numbers of c"),
    "c-fewer": ("3\n1\n2\n1 1\n1 1 1 1 1\n", 5, "'1' after 3 numbers; expected the 3 numbers of c"),
    "header-ends": ("3\n1\n", 2, "the file ends after 0 numbers; expected the sizes of 1 blocks"),
    "c-ends": ("3\n1\n2\n1 1\n", 4, "the file ends after 2 numbers; expected the 3 numbers of c"),
    "no-entry": (HEAD, 4, "the file ends here; expected entries after it"),
    "short": (HEAD + "0 1 1 1 1\n\n1 1 2\n", 7, "3 words; expected 5 numbers: matrix, block, i, j and value"),
    "short-all": (HEAD + "0 1 1 1\n", 5, "4 words; expected 5 numbers"),
    "long": (HEAD + "0 1 1 1 1 1\n", 5, "6 words; expected 5 numbers"),
    "two-a-line": (HEAD + "0 1 1 1 1 1 1 1 1 1\n", 5, "10 words; expected 5 numbers"),
    "word": (HEAD + "0 1 1 1 1\n0 1 1 2 1.O\n", 6, "'1.O'; expected a number"),
    "underscore": (HEAD + "0 1 1 1 1_0\n", 5, "'1_0'; expected a number"),
    "fortran": (HEAD + "0 1 1 1 1D0\n", 5, "'1D0'; expected a number"),
    "comma": (HEAD + "0 1 1 1 1,5\n", 5, "6 words; expected 5 numbers"),
    "nan": (HEAD + "0 1 1 1 1\n0 1 1 2 nan\n", 6, "the entry 0 1 1 2 nan; expected finite numbers"),
    "inf": (HEAD + "0 1 1 1 -inf\n", 5, "the entry 0 1 1 1 -inf; expected finite numbers"),
    "huge": (HEAD + "0 1 1 2 1.7e308\n", 5, "expected finite numbers"),
    "place-part": (HEAD + "0 1 1 1.5 1\n", 5, "an entry at 0 1 1 1.5; expected four integers"),
    "matrix": (HEAD + "0 1 1 1 1\n3 1 1 1 1\n", 6, "an entry of matrix 3; expected 0 to 2"),
    "matrix-negative": (HEAD + "-1 1 1 1 1\n", 5, "an entry of matrix -1; expected 0 to 2"),
    "block": (HEAD + "0 3 1 1 1\n", 5, "an entry of block 3; expected 1 to 2"),
    "block-zero": (HEAD + "0 0 1 1 1\n", 5, "an entry of block 0; expected 1 to 2"),
    "row": (HEAD + "0 1 3 1 1\n", 5, "an entry at 3 1 of block 1; expected 1 to 2"),
    "column": (HEAD + "0 1 1 1 1\n\n0 1 1 30 1\n", 7, "an entry at 1 30 of block 1; expected 1 to 2"),
    "index-zero": (HEAD + "0 2 0 0 1\n", 5, "an entry at 0 0 of block 2; expected 1 to 2"),
    "diagonal": (HEAD + "0 2 1 2 1\n", 5, "an entry at 1 2 of the diagonal block 2; expected i = j"),
    "again": (
        HEAD + "0 1 1 2 1\n1 1 1 1 1\n0 1 1 2 2\n",
        7,
        "the value 2.0 at the place that has 1.0 on line 5; expected each entry once",
    ),
    "asymmetric": (HEAD + "0 1 1 2 1\n0 1 2 1 2\n", 6, "the value 2.0 at the place that has 1.0 on line 5"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_line(tmp_path, capsys, name):
    text, line, message = BAD[name]
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        bo.read_sdpa(path)
    assert str(caught.value).startswith(str(path) if line is None else f"{path}, line {line}: ")
    assert cli.main(["solve", str(path)]) == 2
    assert capsys.readouterr().err == f"bregopt: error: {caught.value}\n"


@pytest.mark.parametrize(
    "content", [EXAMPLE.encode(), gzip.compress(EXAMPLE.encode())[:-20], b""], ids=["plain", "cut", "empty"]
)
def test_gz_that_is_no_gzip(tmp_path, content):
    path = tmp_path / "a.dat-s.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.dat-s\.gz (cannot be read as gzip|is empty)"):
        bo.read_sdpa(path)


def test_gzip_that_is_not_called_so(tmp_path):
    path = tmp_path / "a.dat-s"
    path.write_bytes(gzip.compress(EXAMPLE.encode()))
    with pytest.raises(ValueError, match="line 1: "):
        bo.read_sdpa(path)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.dat-s: no such file"):
        bo.read_sdpa(tmp_path / "none.dat-s")
    with pytest.raises(ValueError, match="cannot be read"):
        bo.read_sdpa(tmp_path)


@examples(75)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, data):
    text = EXAMPLE
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 4))
        text = (
            text[:at]
            + data.draw(st.text('0123456789-+.eE \n"*{},xnaif\x00\xe9', max_size=3))
            + text[at + cut :]
        )
    path = tmp_path_factory.mktemp("damaged") / "a.dat-s"
    path.write_bytes(text.encode("latin-1"))
    try:
        problem = bo.read_sdpa(path)
    except ValueError as error:
        refusal = error
    else:
        assert np.isfinite(problem.program().A.norms()).all()
        return
    assert str(refusal).startswith(str(path))


# --- Written and read again -------------------------------------------------------------------------


@st.composite
def files(draw):
    """A random file without comments or punctuation, entries in any order, on either side of the diagonal."""
    sizes = [*draw(st.lists(st.sampled_from([-3, -1, 1, 2, 4]), min_size=1, max_size=4)), 2]
    m = draw(st.integers(1, 4))
    number = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: x + 0.0)
    places = st.tuples(
        st.integers(0, m), st.integers(0, len(sizes) - 1), st.integers(0, 9), st.integers(0, 9)
    )
    entries = {}
    for k, b, i, j in draw(st.lists(places, min_size=1, max_size=25)):
        n = abs(sizes[b])
        i, j = i % n, (i if sizes[b] < 2 else j) % n
        entries.setdefault((k, b, *sorted((i, j))), f"{k} {b + 1} {i + 1} {j + 1} {draw(number)!r}")
    entries[1, len(sizes) - 1, 0, 0] = f"1 {len(sizes)} 1 1 1.0"  # so that there is an entry
    c = draw(st.lists(number, min_size=m, max_size=m))
    head = [str(m), str(len(sizes)), " ".join(map(str, sizes)), " ".join(map(repr, c))]
    return "\n".join([*head, *entries.values(), ""])


@given(text=files(), seed=st.integers(0, 9))
def test_files_mean_what_they_say_and_round_trip(tmp_path_factory, text, seed):
    folder = tmp_path_factory.mktemp("sdpa")
    problem = bo.read_sdpa(written(folder, text))
    program, (c, F) = problem.program(), matrices_of(text)
    rng = np.random.default_rng(seed)
    X = [(A + A.T) / 2 for A in (rng.normal(size=(X.n, X.n)) for X in problem.matrices)]
    u = rng.normal(size=program.k)
    sizes = [int(s) for s in text.splitlines()[2].split()]
    vectors, matrices = np.split(u, np.cumsum([v.size for v in problem.variables])[:-1]), iter(X)
    vectors = iter(vectors)
    Y = [next(matrices) if size > 1 else np.diag(next(vectors)) for size in sizes]
    value = [sum(np.vdot(A, B) for A, B in zip(F_k, Y, strict=True)) for F_k in F]
    np.testing.assert_allclose(program.activity(X, u), value[1:], rtol=1e-12, atol=1e-6)
    cost = sum(block.cost_value(A) for block, A in zip(program.blocks, X, strict=True)) + program.c @ u
    np.testing.assert_allclose(-cost, value[0], rtol=1e-12, atol=1e-6)
    np.testing.assert_array_equal(program.bounds.lo, c)

    first, second = folder / "first.dat-s", folder / "second.dat-s"
    bo.write_sdpa(problem, first)
    bo.write_sdpa(bo.read_sdpa(first), second)
    assert first.read_bytes() == second.read_bytes()


def linear_problem(rng, sense):
    """A feasible and bounded problem with every kind of row and box, two matrices and two vectors."""
    X, Y = bo.PSD(3, name="X"), bo.PSD(2, name="Y")
    u = bo.Variable(5, name="u", lower=[0, 0.2, -1, -2, 0], upper=[4, 3, 1, 2, 0])
    v = bo.Variable(2, name="v")
    point = [a @ a.T for a in (rng.normal(size=(3, 3)), rng.normal(size=(2, 2)))]
    at = np.array([1, 1, 0.3, -0.7, 0])
    A, B = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 2, 2))
    A, B, G = A + A.transpose(0, 2, 1), B + B.transpose(0, 2, 1), rng.normal(size=(2, 5))
    activity = (
        np.array([np.vdot(a, point[0]) + np.vdot(b, point[1]) for a, b in zip(A, B, strict=True)]) + G @ at
    )
    mixed = bo.inner(A, X) + bo.inner(B, Y) + G @ u
    rows = [
        bo.trace(X) + bo.trace(Y) <= np.trace(point[0]) + np.trace(point[1]) + 1,
        mixed[0] == activity[0],
        bo.between(mixed[1], activity[1] - 0.5, activity[1] + 0.25),
        X[0, 1] - Y[0, 0] >= point[0][0, 1] - point[1][0, 0] - 0.1,
        bo.sq_distance(X, 0, 2) <= v[0],
        bo.between(v, -3, 50),
    ]
    C = rng.normal(size=(3, 3))
    objective = bo.inner(C + C.T, X) - bo.trace(Y) + bo.sum(rng.normal(size=5) * u) + v[0] - 2 * v[1] + 7.5
    return bo.Problem(sense(objective), rows)


@pytest.mark.parametrize(("sense", "seed"), turns([bo.Minimize, bo.Maximize], range(4)))
def test_every_row_and_box_can_be_written(tmp_path, sense, seed):
    problem = linear_problem(np.random.default_rng(seed), sense)
    bo.write_sdpa(problem, tmp_path / "a.dat-s")
    again = bo.read_sdpa(tmp_path / "a.dat-s")
    assert [X.n for X in again.matrices] == [3, 2]
    assert [u.size for u in again.variables][:2] == [5, 2]
    program = again.program()
    assert (program.bounds.lo == program.bounds.hi).all()
    expected, found = solve(problem), solve(again)
    sign = 1 if sense is bo.Maximize else -1
    assert sign * found.value == pytest.approx(expected.value, rel=1e-5, abs=1e-5)
    bo.write_sdpa(again, tmp_path / "b.dat-s")
    assert (tmp_path / "a.dat-s").read_bytes() == (tmp_path / "b.dat-s").read_bytes()


def test_parameters_are_written_with_their_values(tmp_path):
    X, p = bo.PSD(2), bo.Parameter(value=3.0)
    bo.write_sdpa(bo.Problem(bo.Maximize(X[0, 1]), [bo.diag(X) == p]), tmp_path / "a.dat-s")
    assert (tmp_path / "a.dat-s").read_text() == "2\n1\n2\n3.0 3.0\n0 1 1 2 0.5\n1 1 1 1 1.0\n2 1 2 2 1.0\n"


def test_what_cannot_be_written_is_named(tmp_path):
    X, path = bo.PSD(2, name="K"), tmp_path / "a.dat-s"
    with pytest.raises(ValueError, match="the logdet divergence of K"):
        bo.write_sdpa(bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2)))), path)
    rows = [bo.trace(X) == 1, bo.soft(X[0, 0] <= 0.1)]
    with pytest.raises(ValueError, match=r"constraint 1 \(soft\(K\[0, 0\] <= 0\.1\)\) is soft"):
        bo.write_sdpa(bo.Problem(bo.Minimize(bo.trace(X)), rows), path)
    with pytest.raises(ValueError, match="no constraint"):
        bo.write_sdpa(bo.Problem(bo.Minimize(bo.trace(X))), path)
    assert not path.exists()


# --- DIMACS errors ----------------------------------------------------------------------------------


def test_dimacs_errors_are_those_of_the_formulas(tmp_path):
    path = tmp_path / "a.dat-s"
    bo.write_sdpa(linear_problem(np.random.default_rng(1), bo.Maximize), path)
    c, F = matrices_of(path.read_text())
    problem = bo.read_sdpa(path)
    solution = solve(problem)
    Y = [*solution.X, *(np.diag(value) for value in solution.u.values())]
    x = problem.constraints[0].dual_value
    Z = [sum(x_k * F_k[b] for x_k, F_k in zip(x, F[1:], strict=True)) - F[0][b] for b in range(len(Y))]
    inner = [sum(np.vdot(A, B) for A, B in zip(F_k, Y, strict=True)) for F_k in F]
    largest = 1 + max(np.abs(A).max() for A in F[0])
    size = 1 + abs(inner[0]) + abs(c @ x)
    expected = [
        np.linalg.norm(inner[1:] - c) / (1 + np.abs(c).max()),
        max(0, *(-np.linalg.eigvalsh(A)[0] for A in Y)) / (1 + np.abs(c).max()),
        0,
        max(0, *(-np.linalg.eigvalsh(A)[0] for A in Z)) / largest,
        (c @ x - inner[0]) / size,
        sum(np.vdot(A, B) for A, B in zip(Y, Z, strict=True)) / size,
    ]
    found = bo.dimacs_errors(problem, solution)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-14)
    assert np.abs(found).max() < 1e-6


def test_dimacs_errors_of_rows_boxes_and_free_variables():
    """Compare with the standard form written for the same problem, which has the slacks as variables."""
    from bregopt.certify import dimacs_errors

    problem = linear_problem(np.random.default_rng(2), bo.Minimize)
    solution = solve(problem)
    assert np.abs(bo.dimacs_errors(problem, solution)).max() < 1e-6
    program, raw = problem.program(), solution._raw
    b, C = 1 + 50, 1 + max(*(np.abs(block.C).max() for block in program.blocks), np.abs(program.c).max())
    # v[1] is bounded by rows only: a cost without a multiplier is an error of the free variables.
    y = raw.duals.copy()
    y[-1] += 0.5
    assert dimacs_errors(program, raw.X, raw.u, y)[2] == pytest.approx(0.5 / C, rel=1e-4)
    u = raw.u.copy()
    u[4] -= 0.25
    assert dimacs_errors(program, raw.X, u, raw.duals)[1] == pytest.approx(0.25 / b, rel=1e-4)
    worse = [raw.X[0] - 10 * np.eye(3), raw.X[1]]
    smallest = np.linalg.eigvalsh(worse[0])[0]
    assert dimacs_errors(program, worse, raw.u, raw.duals)[1] == pytest.approx(-smallest / b)


def test_dimacs_errors_are_refused_where_they_mean_nothing():
    X = bo.PSD(2)
    near = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(2))), [X[0, 0] == 2])
    with pytest.raises(ValueError, match="linear objectives"):
        bo.dimacs_errors(near, near.solve())
    nothing = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] == 1, X[0, 0] == 2])
    with pytest.raises(ValueError, match=r"\(infeasible\) has no X"):
        bo.dimacs_errors(nothing, nothing.solve())


# --- SDPLIB -----------------------------------------------------------------------------------------

SDPLIB = {  # rows, orders of the matrices, nonnegative numbers
    "arch0": (174, [161], 174),
    "control1": (21, [10, 5], 0),
    "gpp100": (101, [100], 0),
    "gpp250-1": (251, [250], 0),
    "maxG11": (800, [800], 0),
    "mcp250-1": (250, [250], 0),
    "theta2": (498, [100], 0),
    "truss1": (6, [2] * 6, 1),
    "truss2": (58, [4] * 33, 1),
    "infd1": (10, [30], 0),
}


@pytest.mark.parametrize("name", SDPLIB)
def test_sdplib_is_read_and_round_trips(data, tmp_path, name):
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    program = problem.program()
    assert (program.m, [block.n for block in program.blocks], program.k) == SDPLIB[name]
    bo.write_sdpa(problem, tmp_path / "a.dat-s")
    bo.write_sdpa(bo.read_sdpa(tmp_path / "a.dat-s"), tmp_path / "b.dat-s")
    assert (tmp_path / "a.dat-s").read_bytes() == (tmp_path / "b.dat-s").read_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    first(3, [("truss1", -8.999996), ("truss3", -9.109996), ("truss4", -9.009996), ("theta1", 23.0)]),
)
def test_sdplib_optima(data, name, value):
    problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
    solution = solve(problem)
    assert solution.value == pytest.approx(value, rel=2e-6)
    assert np.abs(bo.dimacs_errors(problem, solution)).max() < 1e-7
    rows = problem.constraints[0]
    assert rows.lower.value @ rows.dual_value == pytest.approx(value, rel=2e-6)


def test_multipliers_are_sdpas_x(data):
    problem = bo.read_sdpa(data / "sdplib" / "truss1.dat-s.gz")
    solve(problem)
    program, x = problem.program(), problem.constraints[0].dual_value
    for b, block in enumerate(program.blocks):  # sum_k x_k F_k - F_0 is psd; block.C is -F_0
        assert np.linalg.eigvalsh(program.A.adjoint(x, b) + block.C)[0] > -1e-6
    assert (program.B.T @ x + program.c > -1e-6).all()


@pytest.mark.parametrize("name", ["truss1", "control1", "arch0"])
def test_csdp_reads_what_is_written(data, tmp_path, name):
    if shutil.which("csdp") is None:
        pytest.skip("no csdp on the path")
    bo.write_sdpa(bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz"), tmp_path / "a.dat-s")
    done = subprocess.run(["csdp", "a.dat-s"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    found = float(re.search(r"Primal objective value: (\S+)", done.stdout).group(1))
    published = {"truss1": -8.999996, "control1": 17.78463, "arch0": 0.566517}
    assert found == pytest.approx(published[name], rel=2e-6)


def test_csdp_agrees_on_a_problem_of_every_kind(tmp_path):
    if shutil.which("csdp") is None:
        pytest.skip("no csdp on the path")
    problem = linear_problem(np.random.default_rng(3), bo.Maximize)
    bo.write_sdpa(problem, tmp_path / "a.dat-s")
    done = subprocess.run(["csdp", "a.dat-s"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    found = float(re.search(r"Primal objective value: (\S+)", done.stdout).group(1))
    assert found == pytest.approx(solve(problem).value, rel=1e-5)


# --- The command line -------------------------------------------------------------------------------

MAX_CUT = "3\n2\n3 -1\n1 1 1\n0 1 1 2 -0.5\n0 1 2 3 -0.5\n0 1 1 3 -0.5\n0 2 1 1 -1\n" + "".join(
    f"{k} 1 {k} {k} 1\n" for k in (1, 2, 3)
)


def test_solve_prints_both_objectives_and_the_errors(tmp_path, capsys):
    path, output = written(tmp_path, MAX_CUT), tmp_path / "out.json"
    arguments = ["--solver", "cvxpy", "--output", str(output), "--output", str(tmp_path / "out.npz")]
    assert cli.main(["solve", str(path), *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(
        "a.dat-s: 3 equalities, 1 matrix of order 3, 1 nonnegative numbers\nbregopt solution: "
    )
    primal, dual = re.search(r"primal objective (\S+)   dual objective (\S+)", out).groups()
    assert float(primal) == pytest.approx(1.5, abs=1e-5)  # the triangle: -(e'Xe - 3) / 2 at most 3/2
    assert float(dual) == pytest.approx(1.5, abs=1e-5)
    errors = re.search(r"DIMACS +(.*)", out).group(1).split()
    assert len(errors) == 6
    assert max(abs(float(e)) for e in errors) < 1e-6
    assert json.loads(output.read_text())["value"] == pytest.approx(1.5, abs=1e-5)
    assert set(np.load(tmp_path / "out.npz")) == {"X", "u_u2", "dual_0"}


def test_explain_and_check_take_files(tmp_path, capsys):
    path = tmp_path / "a.dat-s.gz"
    path.write_bytes(
        gzip.compress(MAX_CUT.replace("3\n2\n3 -1", "3\n1\n3").replace("0 2 1 1 -1\n", "").encode())
    )
    assert cli.main(["explain", str(path)]) == 0
    assert "cvxpy" in capsys.readouterr().out
    assert cli.main(["check", str(path), "--solver", "psdboost", "--solver", "cvxpy"]) == 0
    assert "ok: 2 routes agree" in capsys.readouterr().out


def test_unbounded_files_are_3(tmp_path, capsys):
    path = written(tmp_path, "1\n1\n2\n1\n0 1 2 2 1\n1 1 1 1 1\n")
    assert cli.main(["solve", str(path), "--solver", "cvxpy"]) == 3
    out = capsys.readouterr().out
    assert "unbounded" in out
    assert "DIMACS" not in out


@pytest.mark.parametrize("option", ["--problem", "--divergence", "--key"])
def test_options_of_matrices_are_refused(tmp_path, capsys, option):
    value = {"--problem": "nearest-psd", "--divergence": "logdet", "--key": "A"}[option]
    assert cli.main(["solve", str(written(tmp_path, MAX_CUT)), option, value]) == 2
    assert f"argument {option} is for a matrix" in capsys.readouterr().err
