"""The checker of one file: problems of exact optima, statements of bregopt, forged files, and its lemmas."""

import ast
import copy
import json
import shutil
import subprocess
import sys
import warnings
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import truth
from rational import KINDS, pair, problem
from samples import first, turns

import bregopt as bo
import bregopt_check as check
from bregopt.rigorous.file import schema
from bregopt.rigorous.file.statement import text
from bregopt.rigorous.linear_algebra import ldl


def saved(solution, path):
    verification = solution.verify()
    verification.certificate.save(path)
    return verification


def write(path, facts):
    """Write a statement alone, which is all that the checker reads."""
    with path.open("wb") as file:
        np.savez(file, statement=np.frombuffer(json.dumps(facts).encode(), np.uint8))


def bounds(path):
    """Return what the checker proves of both sides, None where it proves nothing."""
    P, found = check.Problem(check.read(path)), []
    for side in ("lower", "ray" if "ray" in P.facts else "upper"):
        try:
            found.append(check.bound(P, side))
        except check.Unproven:
            found.append(None)
    return found


def changed(facts, rng):
    """Return a statement with other numbers in a point, or other equations."""
    forged = copy.deepcopy(facts)
    point = forged[rng.choice([side for side in ("lower", "upper") if side in facts])]
    kind = rng.integers(6)
    if kind < 3:  # all numbers, one, or the factor
        size = max(map(abs, point["at"]), default=0) * 10.0 ** rng.integers(-12, 1)
        at = range(len(point["at"]) - 1) if kind == 0 else [int(rng.integers(len(point["at"])))]
        for k in at:
            point["at"][k] += int(rng.normal() * size)
    elif kind == 3:
        point["singular"] = int(point["singular"] * 10.0 ** rng.integers(-3, 4))
    elif kind == 4:
        point["fixed"] = [k for k in point["fixed"] if rng.random() < 0.5]
    else:
        point["equations"] = [
            [k, s + int(rng.integers(3))] for k, s in point["equations"] if rng.random() < 0.7
        ]
    return forged


@pytest.mark.parametrize(("kind", "seed"), turns(KINDS, range(3)))
def test_statements_of_bregopt_are_proven_and_hold_the_integer_optimum(kind, seed, tmp_path, capsys):
    known = problem(np.random.default_rng(seed), kind)
    certificate = saved(known.problem.solve(), tmp_path / "bounds.npz").certificate
    assert check.main([tmp_path / "bounds.npz"]) == 0
    assert "NOT" not in capsys.readouterr().out
    optimum = -known.value if certificate.data.maximize else known.value
    lower, upper = bounds(tmp_path / "bounds.npz")
    assert (lower is None) == (certificate.claims[0] == -np.inf)
    assert (upper is None) == (certificate.claims[1] == np.inf)
    assert lower is None or lower <= optimum
    assert upper is None or upper >= optimum


@pytest.mark.parametrize(
    ("kind", "seed"), turns(["equalities", "inequalities", "blocks", "maximize", "trace"], range(4))
)
def test_lower_bounds_are_those_of_the_formula_in_fractions(kind, seed, tmp_path):
    # A second implementation of the page's inequality, from NumPy's reader of the file.
    saved(problem(np.random.default_rng(seed), kind).problem.solve(), tmp_path / "bounds.npz")
    lower = bounds(tmp_path / "bounds.npz")[0]
    with np.load(tmp_path / "bounds.npz") as arrays:
        facts = json.loads(bytes(arrays["statement"]))
    y, t = [Fraction(v, facts["lower"]["at"][-1]) for v in facts["lower"]["at"]], 2 ** facts["bits"]
    slack = {p: Fraction(a, t) for p, a, _ in facts["cost"][2]}
    total = -Fraction(facts["cost"][0], t)
    for v, (relation, end, _, entries) in zip(y, facts["rows"], strict=False):
        assert relation == 0 or v >= 0
        total += v * Fraction(end, t)
        for p, a, _ in entries:
            slack[p] = slack.get(p, 0) - v * Fraction(a, t)
    place = 0
    for block in facts["matrices"]:
        W = [[Fraction(0)] * block["n"] for _ in range(block["n"])]
        for i, j in zip(*np.triu_indices(block["n"]), strict=True):
            W[i][j] = W[j][i] = slack.get(place, Fraction(0)) / (1 + int(i < j))
            place += 1
        assert ldl(W) is not None
    assert lower == total


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_bounds_of_changed_points_never_exclude_the_optimum(seed, tmp_path):
    rng = np.random.default_rng(seed)
    known = problem(rng, KINDS[seed])
    certificate = saved(known.problem.solve(), tmp_path / "bounds.npz").certificate
    optimum = -known.value if certificate.data.maximize else known.value
    facts = check.read(tmp_path / "bounds.npz")
    for _ in range(25):
        write(tmp_path / "forged.npz", changed(facts, rng))
        lower, upper = bounds(tmp_path / "forged.npz")
        assert lower is None or lower <= optimum
        assert upper is None or upper >= optimum


HARD = {  # where numbers of a file, and what its checker may not count, once proved less than verify()
    (0, "one free entry", "nearest 0 2^-2 0"): "the distance is zero",
    (1, "nearness", "frobenius zero 2"): "the distance is zero",
    (1, "log_det", "barrier 2^-3 0"): "X0 is an inverse, not symmetric in the last digit",
    (1, "one free entry", "largest 0 2^-25 0"): "multipliers of 1e8 beside slacks of 1e-9",
    (2, "divergence", "von_neumann diagonal 2^-39 0"): "the logarithm of a matrix of condition 1e12",
    (11, "margin", "0"): "the sum of multipliers is one up to 2e-11",
    (8, "divergence", "von_neumann trace 2^-19 0"): "the logarithm of a matrix of condition 1e6",
}
LATER = {  # of seed 72
    (4, "margin", "0"): "a move of 2e-12 of a soft row made a slack of size 1e6 indefinite",
    (10, "mirrored", "least -1 2^-8 0"): "rows on a face have more digits than the data",
    (10, "correlation", "fixed 0"): "the sign of a matrix with eigenvalues of round-off",
}


def drawn(seed, number):
    """Return the problems of a round of the test-bed, some of which overflow when they are drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return truth.drawn(seed, number)


def claims_of_case(case, path):
    """Save the bounds of a problem of known truth; return whether the checker proves all that is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            verified = case.make().solve(tol=1e-8).verify()
        except bo.InfeasibleRowError:
            return True
    verified.certificate.save(path)
    known = np.isfinite([verified.lower, verified.upper])
    claimed = np.isfinite(verified.certificate.claims)
    return check.main([path]) == 0 and claimed.sum() == known.sum()


@pytest.mark.parametrize(("number", "family", "name"), HARD)
def test_statements_of_hard_problems(number, family, name, tmp_path):
    pytest.importorskip("flint")
    case = next(own for own in drawn(71, number) if (own.family, own.name) == (family, name))
    assert claims_of_case(case, tmp_path / "bounds.npz")


@pytest.mark.parametrize(("number", "family", "name"), LATER)
def test_statements_of_further_hard_problems(number, family, name, tmp_path):
    pytest.importorskip("flint")
    case = next(own for own in drawn(72, number) if (own.family, own.name) == (family, name))
    assert claims_of_case(case, tmp_path / "bounds.npz")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_each_statement_of_the_test_bed_is_proven(number, tmp_path):
    pytest.importorskip("flint")
    missed = [own for own in drawn(72, number) if not claims_of_case(own, tmp_path / "bounds.npz")]
    assert not [(own.family, own.name) for own in missed]


def test_claims_beyond_the_proof_and_broken_files_are_refused(tmp_path, capsys, monkeypatch):
    X = bo.PSD(3)
    path, forged = tmp_path / "bounds.npz", tmp_path / "forged.npz"
    saved(bo.Problem(bo.Maximize(bo.sum(X)), [bo.diag(X) == 1]).solve(), path)
    facts = check.read(path)

    def code(**other):
        write(forged, {name: value for name, value in (facts | other).items() if value is not None})
        return check.main([forged])

    assert code() == 0
    assert code(**{"claimed lower": (-8.9).hex()}) == 1
    assert code(**{"claimed upper": (-9.1).hex()}) == 1
    assert code(lower=None) == 1
    _, end, _, entries = facts["rows"][0]
    for row in (
        [0, end, -1, entries],  # a radius below zero
        [0, end, 0, [[p, a, -1] for p, a, _ in entries]],
        [0, end, 0, entries + entries],  # one entry several times
        [0, end, 0, [[p + 50, a, e] for p, a, e in entries]],
        [0, end, 0, [[-1, a, e] for _, a, e in entries]],
        [0, end, 0, [[p, "9", e] for p, _, e in entries]],
        [0, None, 0, entries],
        [0, float("nan"), 0, entries],
    ):
        assert code(rows=[row, *facts["rows"][1:]]) == 2
    assert code(matrices=[{"name": "X", "n": 10**9}]) == 2
    assert code(free=-1) == 2
    assert code(rows=facts["rows"][1:]) in (1, 2)
    at = facts["lower"]["at"]
    for point in (at[:-1], [*at[:-1], -at[-1]], [*at[:-1], 0]):
        assert code(lower=facts["lower"] | {"at": point}) == 1
    # A direction is no point: nothing says that the rows can be met.
    ray = {"at": [1, 0, 0, 0, 0, 0, 0], "fixed": [], "equations": [], "singular": 0}
    rows = [[1, 1, 0, [[0, 1, 0]]], [1, 1, 0, [[0, -1, 0]]]]
    assert code(bits=0, rows=rows, cost=[0, 0, [[0, -1, 0]]], upper=ray | {"at": [0] * 7}) == 1
    free = {"bits": 0, "rows": [[1, 1, 0, [[1, 1, 0]]]], "cost": [0, 0, [[0, -1, 0]]], "lower": None}
    free |= {"claimed lower": (-np.inf).hex(), "claimed upper": (-np.inf).hex()}
    assert code(**free, upper=ray, ray=ray) == 1
    point = ray | {"at": [1, 1, 0, 1, 0, 0, 1]}
    assert code(**free, upper=point, ray=ray) == 0
    content = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 60):
        broken = bytearray(content)
        broken[place] ^= 1 << int(place % 8)
        forged.write_bytes(broken)
        assert check.main([forged]) in (0, 2)  # a bit of another array changes nothing
    monkeypatch.setattr(check, "LARGEST", 2**20)
    with zipfile.ZipFile(forged, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("statement.npy", bytes(2**20 + 1))
    assert check.main([forged]) == 2
    assert check.main([tmp_path / "missing.npz"]) == 2
    assert check.main(["--help"]) == 0
    assert check.main([]) == 2
    printed = capsys.readouterr().out
    assert "too large" in printed
    assert "missing.npz: refused: it cannot be read (FileNotFoundError" in printed
    assert "FILE.npz" in printed


def test_statements_of_other_problems_are_refused_by_bregopt(tmp_path):
    X = bo.PSD(3)
    path, forged = tmp_path / "bounds.npz", tmp_path / "forged.npz"
    saved(bo.Problem(bo.Maximize(bo.sum(X)), [bo.diag(X) == 1]).solve(), path)
    fields = schema.Fields.of_file(path)
    facts = {k: v for k, v in fields._facts.items() if k != "format"}
    stated = check.read(path)
    for other in ({"claimed lower": (-10.0).hex()}, {"cost": [0, 0, []]}, {"rows": stated["rows"][:2]}):
        with forged.open("wb") as file:
            np.savez(file, **schema.sealed(fields._arrays | {"statement": text(stated | other)}, facts))
        with pytest.raises(ValueError, match=f"{next(iter(other))} of the statement is not that"):
            bo.BoundCertificate.load(forged)


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_bounds_without_an_interior_of_the_dual_cone(seed, tmp_path):
    # No row and no cost has the last diagonal entry, so that slack matrices have a zero there.
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    X0, W = (np.pad(own, (0, 1)) for own in pair(rng, n))
    X0[n, n] = 1
    A, y = [], rng.integers(-3, 4, m)
    for _ in range(m):
        own = rng.integers(-3, 4, (n + 1, n + 1))
        own += own.T
        own[n, n] = 0
        A.append(own)
    X = bo.PSD(n + 1)
    C = W + sum(v * own for v, own in zip(y, A, strict=True))
    b = [int((own * X0).sum()) for own in A]
    optimum = int((C * X0).sum())
    rows = [bo.inner(own.astype(float), X) == v for own, v in zip(A, b, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bo.Problem(bo.Minimize(bo.inner(C.astype(float), X)), rows).solve(tol=1e-9)
    verified = saved(found, tmp_path / "bounds.npz")
    assert verified.lower <= optimum <= verified.upper
    if found.status == "optimal":
        assert verified.lower >= optimum - 1e-6 * (1 + abs(optimum))
        verified.certificate.check()
        lower = bounds(tmp_path / "bounds.npz")[0]
        assert lower is None or optimum - 1e-6 * (1 + abs(optimum)) <= lower <= optimum


def test_soft_rows_beside_singular_slacks(tmp_path):
    """Multipliers of soft rows are fractions, too, no larger than the weights of hinges."""
    for seed in (7, 27, 167, 797):
        known = problem(np.random.default_rng([71, seed]), "soft")
        value, verified = known.value, saved(known.problem.solve(tol=1e-8), tmp_path / "bounds.npz")
        assert value - 1e-6 * (1 + abs(value)) <= verified.lower <= value <= verified.upper
        assert check.main([tmp_path / "bounds.npz"]) == 0
        lower, upper = bounds(tmp_path / "bounds.npz")
        assert lower <= value <= upper


@pytest.mark.parametrize("seed", range(3))
def test_free_variables_of_soft_rows_cost_nothing(seed, tmp_path):
    """The largest margin: the multipliers of comparisons sum to one, and the checker moves none of them."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(9, 4, 4))
    X, margin = bo.PSD(4), bo.Variable(name="margin")
    rows = bo.soft(bo.inner(G + G.transpose(0, 2, 1), X) - 0.3 * margin >= 0, gamma=1.1, penalty="hinge")
    own = bo.Problem(bo.Maximize(margin), [rows, bo.trace(X) == 1])
    verified = saved(own.solve(tol=1e-8), tmp_path / "bounds.npz")
    assert verified.relative_width <= 1e-6
    assert check.main([tmp_path / "bounds.npz"]) == 0


@pytest.mark.parametrize("seed", first(2, range(8)))
def test_multipliers_that_are_round_off_leave_free_variables_no_cost(seed, tmp_path):
    """No row that acts has the second variable: the multipliers of its rows, some 1e-12, are zero."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    G = rng.normal(size=(2, n, n))
    X, u = bo.PSD(n), bo.Variable(2)
    rows = [bo.trace(X) == 1, bo.inner(G[0] + G[0].T, X) + u[0] == 0.25, u[0] - u[1] >= -1, u[1] <= 3]
    own = bo.Problem(bo.Minimize(bo.inner(G[1] + G[1].T, X) + u[0]), [*rows, u[0] >= -9, u[0] <= 9])
    verified = saved(own.solve(tol=1e-8), tmp_path / "bounds.npz")
    assert verified.relative_width <= 1e-6
    assert check.main([tmp_path / "bounds.npz"]) == 0


def test_cones_free_variables_and_assumptions(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X, t, v = bo.PSD(3, name="X"), bo.Variable(name="t"), bo.Variable(2, name="v")
    C = rng.normal(size=(3, 3))
    rows = [bo.trace(X) + t == 2, X[0, 1] + v[0] == 1, bo.norm2(v) <= t]
    found = saved(bo.Problem(bo.Minimize(bo.inner(C + C.T, X) + v[1]), rows).solve(), tmp_path / "cone.npz")
    assert found.relative_width < 1e-5
    assert check.main([tmp_path / "cone.npz"]) == 0
    facts = check.read(tmp_path / "cone.npz")
    point, multipliers = facts["upper"], facts["lower"]
    assert point["equations"]
    *x, v, t = point["at"]  # no row has the last variable
    for wrong in (
        {"upper": point | {"equations": []}},
        {"upper": point | {"at": [*x, v + t, t]}},
        {"upper": point | {"singular": point["singular"] * 10}},
        {
            "lower": multipliers
            | {"at": [9 * y for y in multipliers["at"][:-1]] + [10 * multipliers["at"][-1]]}
        },
    ):
        write(tmp_path / "forged.npz", facts | wrong)
        assert check.main([tmp_path / "forged.npz"]) == 1
    free = bo.Problem(bo.Minimize(bo.trace(X) - 2 * X[0, 1]), [X[0, 1] - X[1, 2] == 0.3])
    solution = free.solve()
    solution.verify(trace_bound=10.0).certificate.save(tmp_path / "given.npz")
    assert check.main([tmp_path / "given.npz"]) == 0
    assert "given: the trace of X is at most 10.0" in capsys.readouterr().out
    tight = check.read(tmp_path / "given.npz") | {"claimed lower": (-np.inf).hex()}
    write(tmp_path / "given.npz", tight | {"given": [[0, 1]]})  # a bound on some optimal matrix, not on all
    assert check.main([tmp_path / "given.npz"]) == 0


def test_free_variables_beside_singular_slacks(tmp_path):
    # X_11 is in no row and no cost, and 15 = y_1 + 5 y_2 has no solution in doubles near y_1 = 1e-9.
    X, u = bo.PSD(2), bo.Variable(name="u")
    own = bo.Problem(bo.Minimize(2 * X[1, 1] + 15 * u), [u >= 0, 2 * X[1, 1] + 5 * u == 15])
    verified = saved(own.solve(tol=1e-8), tmp_path / "bounds.npz")
    assert verified.lower <= 15 <= verified.upper
    assert check.main([tmp_path / "bounds.npz"]) == 0
    known = problem(np.random.default_rng([0, 782]), "variables")
    assert saved(known.problem.solve(tol=1e-8), tmp_path / "bounds.npz").lower <= known.value
    assert check.main([tmp_path / "bounds.npz"]) == 0
    assert bounds(tmp_path / "bounds.npz")[0] <= known.value


@pytest.mark.parametrize("seed", range(4))
def test_data_in_intervals_and_matrices_that_share_rows(seed, tmp_path):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    C = rng.normal(size=(n, n))
    C, X, Y = C + C.T, bo.PSD(n), bo.PSD(n)
    p = bo.Parameter(n, lo=np.full(n, 1 - 1e-6), hi=np.full(n, 1 + 1e-6), name="p")
    problems = [bo.Problem(bo.Maximize(bo.inner(C, X)), [bo.diag(X) == p])]
    rows = [bo.trace(X) + bo.trace(Y) == 1, X[0, 1] - Y[0, 1] >= 0.01]
    problems.append(bo.Problem(bo.Minimize(bo.inner(C, X) - bo.inner(C, Y)), rows))
    for own in problems:
        verified = saved(own.solve(tol=1e-8), tmp_path / "bounds.npz")
        assert np.isfinite([verified.lower, verified.upper]).all()
        assert check.main([tmp_path / "bounds.npz"]) == 0


def test_contradictions_and_rays(tmp_path):
    X = bo.PSD(3)
    for rows in (
        [bo.diag(X) == 1, X[0, 1] >= 1.5],
        [X[0, 0] + X[1, 1] == X[2, 2], X[2, 2] <= 1, X[0, 1] >= 2],
    ):
        assert saved(bo.Problem(bo.Minimize(bo.trace(X)), rows).solve(), tmp_path / "x.npz").infeasible
        assert check.main([tmp_path / "x.npz"]) == 0
        assert bounds(tmp_path / "x.npz")[0] == np.inf
    ray = bo.Problem(bo.Minimize(X[0, 0] - X[1, 1]), [X[0, 1] == 0]).solve()
    assert saved(ray, tmp_path / "x.npz").unbounded
    assert check.main([tmp_path / "x.npz"]) == 0
    assert bounds(tmp_path / "x.npz")[1] == -np.inf


def test_the_file_needs_the_standard_library_alone(tmp_path):
    source = Path(check.__file__)
    for file in source.parent.glob("bregopt_check*.py"):
        tree = ast.parse(file.read_text())
        modules = {
            name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
        }
        modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        others = {"bregopt_check", *(["flint"] if "divergences" in file.name else [])}
        assert {name.split(".")[0] for name in modules} <= {*sys.stdlib_module_names, *others}
    X = bo.PSD(20)
    C = np.random.default_rng(1).normal(size=(20, 20))
    saved(bo.Problem(bo.Minimize(bo.inner(C + C.T, X)), [bo.diag(X) == 1]).solve(), tmp_path / "cut.npz")
    shutil.copy(source, tmp_path / "alone.py")
    command = [sys.executable, "-I", "-S", "alone.py", "cut.npz"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.count(": proven") == 2


def test_files_that_are_missing_are_named(tmp_path, capsys, monkeypatch):
    cut, near = tmp_path / "cut.npz", tmp_path / "near.npz"
    bo.max_cut([(0, 1), (1, 2), (2, 0)], exact=True).certificate.save(cut)
    saved(bo.nearest_correlation(np.full((3, 3), -0.9) + 1.9 * np.eye(3)), near)
    assert check.main([cut, near]) == 0
    assert "the cut of weight 2.0 is optimal: proven" in capsys.readouterr().out
    divergences = sys.modules["bregopt_check_divergences"]
    for name in ("cuts", "divergences"):
        monkeypatch.setitem(sys.modules, f"bregopt_check_{name}", None)
    assert check.main([cut, near]) == 2
    printed = capsys.readouterr().out
    assert "it needs bregopt_check_cuts.py" in printed
    assert "it needs bregopt_check_divergences.py" in printed
    monkeypatch.setitem(sys.modules, "bregopt_check_divergences", divergences)
    monkeypatch.setattr(divergences, "flint", None)
    assert check.main([near]) == 1
    assert "pip install python-flint" in capsys.readouterr().out


def test_equalities_that_leave_a_face_together(tmp_path):
    # (x0 - x1)^2 = 0 is their sum, and the last two rows are one on the face; the optimum is -2.
    X, path, forged = bo.PSD(3), tmp_path / "face.npz", tmp_path / "forged.npz"
    rows = [X[0, 0] + X[1, 1] == 2, X[0, 1] + X[2, 2] == 2, X[2, 2] == 1, X[0, 2] - X[1, 2] == 0]
    found = saved(
        bo.Problem(bo.Minimize(11 * X[0, 2] - 9 * X[1, 2]), rows).solve(solver="path", tol=1e-8), path
    )
    assert found.relative_width < 1e-6
    facts = check.read(path)
    assert check.main([path]) == 0
    lower, upper = bounds(path)
    assert lower <= -2 <= upper
    ((weights, ((block, units, T),)),) = facts["faces"]
    for wrong in (
        [[[k, -w] for k, w in weights], [[block, units, T]]],
        [[[0, weights[0][1] + 1], *weights[1:]], [[block, units, T]]],
        [[[k, 0] for k, _ in weights], [[block, units, T]]],
        [weights, [[block, units, [[2 * x for x in row] for row in T]]]],
        [weights, [[block, [i for i in range(3) if i not in units], T]]],
        [weights, [[block - 1, units, T]]],
        [[[0, 0]], [[block - 1, units, T]]],
    ):
        write(forged, facts | {"faces": [wrong]})
        assert check.main([forged]) == 2
    rows = [list(row) for row in facts["rows"]]
    for k, w in weights:  # the rows say that the form is positive
        rows[k][1] += (w > 0) - (w < 0)
    write(forged, facts | {"rows": rows})
    assert check.main([forged]) == 2
    write(forged, facts | {"faces": []})
    assert check.main([forged]) == 1


def test_rows_and_numbers_count_as_the_file_states_them(tmp_path, capsys):
    # Unit vectors with the sum zero have products -1/2; without that row one of them may be -1.
    X, path, forged = bo.PSD(3), tmp_path / "face.npz", tmp_path / "forged.npz"
    rows = [bo.diag(X) == 1, bo.quad_form(np.ones(3), X) == 0]
    saved(bo.Problem(bo.Minimize(X[0, 1]), rows).solve(tol=1e-9), path)
    assert check.main([path]) == 0
    facts = check.read(path)
    assert facts["rows"][3][1:] == [
        0,
        0,
        [[p, a << facts["bits"], 0] for p, a in enumerate([1, 2, 2, 1, 2, 1])],
    ]
    ((weights, ((block, units, T),)),) = facts["faces"]
    point = {"at": [1, -1, 0, 1, 0, 1, 1], "fixed": [], "equations": [], "singular": 0}
    for wrong in (
        {"faces": [], "upper": point, "claimed upper": (-0.9).hex()},
        {"faces": [[weights, [[block, units, [*T[:-2], [-x for x in T[-2]], T[-1]]]]]]},
        {"faces": [[[[3, -1]], [[block, units, T]]]]},
        {"faces": [[[[0, 1]], [[block, units, T]]]]},
        {"faces": [[[[-1, 1]], [[block, units, T]]]]},
    ):
        write(forged, facts | wrong)
        assert check.main([forged]) in (1, 2)
        assert "upper bound -0.9: proven" not in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(20))
def test_eigenvalues_and_definiteness_of_integers(seed):
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    F = rng.integers(-4, 5, (n, r))
    W = F @ F.T
    assert check.is_psd(W.tolist())
    below = W - np.diag((np.arange(n) == n - 1).astype(int))
    assert check.is_psd(below.tolist()) == (np.linalg.eigvalsh(below)[0] > -1e-9)
    least, size = float(np.linalg.eigvalsh(below)[0]), abs(W).sum() + 1
    wide = [[int(x) << 200 for x in row] for row in below]
    for share in (-1e-6, 1e-6):  # on both sides of the least eigenvalue
        reach = int((least + share * size) * 2.0**200)
        assert check.is_psd(wide, reach) == check.has_factor(wide, reach) == (share < 0)
    assert not check.has_pivots([[0, 1], [1, 5]])
    for _ in range(5):  # singular, less one unit of 600 binary digits
        F = [
            [int(x) * 2**280 + int(y) for x, y in rng.integers(-(2**40), 2**40, (n, 2))] for _ in range(n + 1)
        ]
        W = [[sum(a * b for a, b in zip(f, g, strict=True)) - (f is g is F[-1]) for g in F] for f in F]
        assert not check.has_factor(W)
    for module in ("cuts", "divergences"):
        found = check.chapter(module).least_eigenvalue(wide) / 2.0**200
        assert min(least - 0.02 * abs(least), 0) - 1e-12 * size <= found <= least + 1e-12 * size


@pytest.mark.parametrize("seed", range(10))
def test_solutions_of_equations_are_within_the_radius(seed):
    rng = np.random.default_rng(seed)
    m, unit = int(rng.integers(1, 6)), 2**90
    A, b = rng.integers(-9, 10, (m, m + 4)), rng.integers(-9, 10, m)
    if np.linalg.matrix_rank(A) < m:
        pytest.skip("dependent rows")
    rows = [
        [0, int(v), 0, [[p, int(a), 0] for p, a in enumerate(row) if a]] for row, v in zip(A, b, strict=True)
    ]
    none = {
        "matrices": [],
        "nonnegative": 0,
        "cones": [],
        "cost": [0, 0, []],
        "given": [],
        "soft": [],
        "faces": [],
    }
    near = [round(x * 2.0**20) * unit >> 20 for x in np.linalg.lstsq(A, b, rcond=None)[0]]
    singular = np.linalg.svd(A, compute_uv=False)[-1]
    point = {"at": [*near, unit], "fixed": [], "equations": [[k, 60] for k in range(m)]}
    facts = {
        "bits": 0,
        "free": m + 4,
        "rows": rows,
        "upper": point | {"singular": int(0.9 * singular * 2.0**60)},
    }
    radius = check.Point(check.Problem(none | facts), "upper").radius / unit
    left = [
        float(sum(int(a) * x for a, x in zip(row, near, strict=True)) - int(v) * unit) / unit
        for row, v in zip(A, b, strict=True)
    ]
    moved = np.linalg.norm(np.linalg.lstsq(A.astype(float), left, rcond=None)[0])
    assert moved <= radius <= 1.2 * np.linalg.norm(left) / singular
    for wrong in ({"singular": int(1.1 * singular * 2.0**60)}, {"singular": 0}):
        with pytest.raises(check.Unproven, match="independent"):
            check.Point(check.Problem(none | facts | {"upper": point | wrong}), "upper")


def test_moves_of_entries_and_signs_of_multipliers_count():
    facts = {"bits": 0, "nonnegative": 0, "cones": [], "given": [], "soft": [], "faces": []}
    facts |= {"matrices": [{"name": "X", "n": 2}], "free": 0, "cost": [0, 0, []]}
    near = {"at": [9, 4, 9, 4], "fixed": [0, 2], "equations": [[0, 0]], "singular": 1}  # 4 X_01 = 3
    point = check.Point(check.Problem(facts | {"rows": [[0, 3, 0, [[1, 4, 0]]]], "upper": near}), "upper")
    W, reach = point.matrix(point.matrices[0])
    assert W == [[9, 4], [4, 9]]
    assert reach >= point.radius >= 1
    # u is at most 5, and has no lower bound.
    facts |= {"matrices": [], "free": 1, "cost": [0, 0, [[0, 1, 0]]], "rows": [[1, -5, 0, [[0, -1, 0]]]]}
    facts["lower"] = {"at": [-1, 1], "fixed": [], "equations": [], "singular": 0}
    with pytest.raises(check.Unproven, match="violated"):
        check.bound(check.Problem(facts), "lower")


def closed_forms():
    """Return problems with divergences, caps and logarithms, and their values to 50 digits."""
    mp = pytest.importorskip("mpmath")
    pytest.importorskip("flint")
    log, rng = mp.log, np.random.default_rng(0)
    G = rng.integers(-2, 3, (4, 4))
    X0, D = (G @ G.T + 4 * np.eye(4)).astype(float), np.diag([1.0, 3.0])
    T, x = mp.mpf(np.trace(X0)), mp.mpf(X0[0, 0])
    own = {
        "frobenius": (bo.frobenius_div, lambda a, b: (a - b) ** 2, lambda a, b, g: (a + g * b) / (1 + g)),
        "logdet": (
            bo.logdet_div,
            lambda a, b: a / b - log(a / b) - 1,
            lambda a, b, g: (1 + g) / (1 / a + g / b),
        ),
        "von_neumann": (
            bo.von_neumann_div,
            lambda a, b: a * log(a / b) - a + b,
            lambda a, b, g: mp.exp((log(a) + g * log(b)) / (1 + g)),
        ),
    }
    found = {}
    for name, (divergence, d, mean) in own.items():
        X, Y = bo.PSD(4), bo.PSD(2)
        row = X[0, 0] == 3 if name == "logdet" else bo.trace(X) == float(T) + 8
        value = {"frobenius": mp.mpf(16), "logdet": d(mp.mpf(3), x), "von_neumann": d(T + 8, T)}[name]
        found[name] = bo.Problem(bo.Minimize(divergence(X, X0)), [row]), value
        capped = bo.Problem(bo.Minimize(divergence(Y, D)), [bo.lambda_max(Y) <= 2])
        found[f"{name} with a cap"] = capped, d(mp.mpf(2), mp.mpf(3))
        soft = bo.soft(Y[0, 0] == 2, gamma=0.5, penalty="divergence")
        a = mean(mp.mpf(1), mp.mpf(2), mp.mpf(0.5))
        value = d(a, mp.mpf(1)) + d(a, mp.mpf(2)) / 2
        found[f"{name} with a row"] = bo.Problem(bo.Minimize(divergence(Y, D)), [soft]), value
    H = np.array([[2.0, 0.0], [0.0, 1.0]])
    weighted = bo.Problem(bo.Minimize(bo.frobenius_div(Y, D, weights=H)), [bo.trace(Y) == 9])
    found["weights"] = weighted, mp.mpf(20)  # 4 a^2 + (5 - a)^2 is least at a = 1
    X = bo.PSD(3)
    cap = [bo.trace(X) == 3, bo.lambda_max(X) <= 2]
    found["cap"] = bo.Problem(bo.Minimize(bo.inner(np.diag([1.0, 5, 7]), X)), cap), mp.mpf(7)
    found["logarithm"] = (
        bo.Problem(bo.Minimize(3 * X[0, 0] - 2 * bo.log(X[0, 0]))),
        2 - 2 * log(mp.mpf(2) / 3),
    )
    return {name: (own, Fraction(mp.nstr(value, 45))) for name, (own, value) in found.items()}


def test_divergences_caps_and_logarithms_hold_values_of_closed_forms(tmp_path, capsys):
    rng, path, forged = np.random.default_rng(1), tmp_path / "bounds.npz", tmp_path / "forged.npz"
    room = Fraction(1, 10**40)
    with pytest.importorskip("mpmath").workdps(50):
        known = closed_forms()
    for name, (own, value) in known.items():
        saved(own.solve(tol=1e-9), path)
        assert check.main([path]) == 0, name
        lower, upper = bounds(path)
        assert lower - room <= value <= upper + room, name
        assert upper - lower < 1e-6, name
        facts = check.read(path)
        for _ in range(12):
            write(forged, changed(facts, rng))
            lower, upper = bounds(forged)
            assert lower is None or lower <= value + room, name
            assert upper is None or upper >= value - room, name
    assert "NOT" not in capsys.readouterr().out
