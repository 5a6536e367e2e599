"""The checker of one file: problems of exact optima, statements of bregopt, forged files, and its lemmas."""

import ast
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
import scipy.sparse as sp
from rational import KINDS, pair, problem

import bregopt as bo
import bregopt_check as check
from bregopt.rigorous import schema
from bregopt.rigorous.rational import ldl


def saved(solution, path):
    verification = solution.verify()
    verification.certificate.save(path)
    return verification


def bounds(path):
    """Return what the checker proves of both sides, None where it proves nothing."""
    lists, facts = check.read(path)
    P, found = check.Problem(lists, facts), []
    for side in ("lower", "upper"):
        try:
            found.append(check.proven(P, side))
        except check.Unproven:
            found.append(None)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
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


@pytest.mark.parametrize("kind", ["equalities", "inequalities", "blocks", "maximize", "trace"])
@pytest.mark.parametrize("seed", range(4))
def test_lower_bounds_are_those_of_the_formula_in_fractions(kind, seed, tmp_path):
    # A second implementation of the page's first inequality, from NumPy's reader of the file.
    saved(problem(np.random.default_rng(seed), kind).problem.solve(), tmp_path / "bounds.npz")
    lower = bounds(tmp_path / "bounds.npz")[0]
    with np.load(tmp_path / "bounds.npz") as arrays:
        facts, own = json.loads(bytes(arrays["facts"])), dict(arrays)
    *y, price = own["fractions"].sum(axis=0) if "fractions" in own else [*own["y"], 1.0]
    y, price = [Fraction(v) for v in y], Fraction(price)
    pairs = zip(y, own["lo"].tolist(), own["hi"].tolist(), strict=True)
    total = sum((v * Fraction(lo if v > 0 else hi) for v, lo, hi in pairs if v), Fraction(0))
    for b, block in enumerate(facts["blocks"]):
        W = [[Fraction(0)] * block["n"] for _ in range(block["n"])]
        rows = sp.csr_array(tuple(own[f"A{b}_{part}"] for part in ("data", "indices", "indptr")))
        rows.resize((len(y), len(own[f"i{b}"])))
        for p, (i, j) in enumerate(zip(own[f"i{b}"].tolist(), own[f"j{b}"].tolist(), strict=True)):
            column = rows[:, [p]].toarray().ravel().tolist()
            spent = sum((v * Fraction(a) for v, a in zip(y, column, strict=True)), Fraction(0))
            W[i][j] = W[j][i] = (price * Fraction(float(own[f"C{b}_mid"][p])) - spent) / (1 + (i < j))
        assert ldl(W) is not None
    assert lower == total / price + Fraction(float.fromhex(facts["offset"]))


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_bounds_of_changed_points_never_exclude_the_optimum(seed, tmp_path):
    rng = np.random.default_rng(seed)
    known = problem(rng, KINDS[seed])
    certificate = saved(known.problem.solve(), tmp_path / "bounds.npz").certificate
    optimum = -known.value if certificate.data.maximize else known.value
    fields = schema.Fields.of_file(tmp_path / "bounds.npz")
    points = [name for name in fields._arrays if name in ("y",) or name.startswith(("point_X", "point_u"))]
    for _ in range(25):
        arrays = dict(fields._arrays)
        name = points[rng.integers(len(points))]
        arrays[name] = arrays[name] + 10.0 ** rng.integers(-9, 2) * rng.normal(size=arrays[name].shape)
        with (tmp_path / "forged.npz").open("wb") as file:
            np.savez(file, **schema.sealed(arrays, {k: v for k, v in fields._facts.items() if k != "format"}))
        lower, upper = bounds(tmp_path / "forged.npz")
        assert lower is None or lower <= optimum
        assert upper is None or upper >= optimum


def test_claims_beyond_the_proof_and_broken_files_are_refused(tmp_path, capsys, monkeypatch):
    X = bo.PSD(3)
    path, forged = tmp_path / "bounds.npz", tmp_path / "forged.npz"
    saved(bo.Problem(bo.Maximize(bo.sum(X)), [bo.diag(X) == 1]).solve(), path)
    fields = schema.Fields.of_file(path)
    facts = {k: v for k, v in fields._facts.items() if k != "format"}

    def code(arrays, facts):
        with forged.open("wb") as file:
            np.savez(file, **schema.sealed(arrays, facts))
        return check.main([forged])

    assert code(fields._arrays, facts) == 0
    tiny = {name: fields._arrays[name] + 1e-300 for name in ("C0_radius", "lo_rad", "hi_rad")}
    assert code(fields._arrays | tiny, facts) == 0  # a unit below the least double
    assert code(fields._arrays, facts | {"lower": (-8.9).hex()}) == 1
    assert code(fields._arrays, facts | {"upper": (-9.1).hex()}) == 1
    assert code({k: v for k, v in fields._arrays.items() if k != "y"}, facts) == 1
    assert code(fields._arrays | {"i0": fields._arrays["i0"] * 0}, facts) == 2  # one entry several times
    assert code(fields._arrays | {"hi_rad": fields._arrays["hi_rad"] - 1}, facts) == 2
    assert code(fields._arrays | {"A0_indices": fields._arrays["A0_indices"] + 50}, facts) == 2
    assert code(fields._arrays, facts | {"rows": 10**9}) == 2
    for name, value in (("lo", np.inf), ("hi", -np.inf), ("lo", 1.5), ("hi", 0.5)):
        assert code(fields._arrays | {name: np.full(3, value)}, facts) == 2  # no row has such ends
    content = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(content), 60):
        broken = bytearray(content)
        broken[at] ^= 1 << int(at % 8)
        forged.write_bytes(broken)
        assert check.main([forged]) in (0, 2)  # a bit of the archive's own dates changes nothing
    monkeypatch.setattr(check, "LARGEST", 2**20)
    with zipfile.ZipFile(forged, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("lo.npy", bytes(2**20 + 1))
    assert check.main([forged]) == 2
    assert check.main([tmp_path / "missing.npz"]) == 2
    assert check.main(["--help"]) == 0
    assert check.main([]) == 2
    printed = capsys.readouterr().out
    assert "too large" in printed
    assert "missing.npz: refused: No such file" in printed
    assert "FILE.npz" in printed


@pytest.mark.parametrize("seed", range(6))
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


def test_cones_free_variables_and_assumptions(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X, t, v = bo.PSD(3, name="X"), bo.Variable(name="t"), bo.Variable(2, name="v")
    C = rng.normal(size=(3, 3))
    rows = [bo.trace(X) + t == 2, X[0, 1] + v[0] == 1, bo.norm2(v) <= t]
    found = saved(bo.Problem(bo.Minimize(bo.inner(C + C.T, X) + v[1]), rows).solve(), tmp_path / "cone.npz")
    assert found.relative_width < 1e-5
    assert check.main([tmp_path / "cone.npz"]) == 0
    fields = schema.Fields.of_file(tmp_path / "cone.npz")
    outside = {"point_u": fields._arrays["point_u"] * [1, 1.01, 1]}  # no row has the second one
    for wrong in ({"point_equations": np.zeros(0, int)}, {"y": 0.9 * fields._arrays["y"]}, outside):
        with (tmp_path / "forged.npz").open("wb") as file:
            facts = {k: v for k, v in fields._facts.items() if k != "format"}
            np.savez(file, **schema.sealed(fields._arrays | wrong, facts))
        assert check.main([tmp_path / "forged.npz"]) == 1
        sides = bounds(tmp_path / "forged.npz")
        assert sides.count(None) == 1 or "y" in wrong
    free = bo.Problem(bo.Minimize(bo.trace(X) - 2 * X[0, 1]), [X[0, 1] - X[1, 2] == 0.3])
    solution = free.solve()
    solution.verify(trace_bound=10.0).certificate.save(tmp_path / "given.npz")
    assert check.main([tmp_path / "given.npz"]) == 0
    assert "given: the trace of X is at most 10.0" in capsys.readouterr().out


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
    assert check.main([near]) == 2
    assert "pip install python-flint" in capsys.readouterr().out


def test_equalities_that_leave_a_face_together(tmp_path):
    # (x0 - x1)^2 = 0 is their sum, and the last two rows are one on the face; the optimum is -2.
    X, path, forged = bo.PSD(3), tmp_path / "face.npz", tmp_path / "forged.npz"
    rows = [X[0, 0] + X[1, 1] == 2, X[0, 1] + X[2, 2] == 2, X[2, 2] == 1, X[0, 2] - X[1, 2] == 0]
    found = saved(
        bo.Problem(bo.Minimize(11 * X[0, 2] - 9 * X[1, 2]), rows).solve(solver="path", tol=1e-8), path
    )
    assert found.relative_width < 1e-6
    fields = schema.Fields.of_file(path)
    facts = {k: v for k, v in fields._facts.items() if k != "format"}
    weight, T = fields._arrays["exposing"], fields._arrays["face0"]
    assert check.main([path]) == 0
    lower, upper = bounds(path)
    assert lower <= -2 <= upper
    for wrong in (
        {"exposing": -weight},
        {"exposing": weight + np.eye(len(weight))[0]},
        {"exposing": 0 * weight},
        {"face0": T[:, :0]},
        {"face0": 2 * T},
        {name: fields._arrays[name] + (weight != 0) for name in ("lo", "hi")},
    ):
        with forged.open("wb") as file:
            np.savez(file, **schema.sealed(fields._arrays | wrong, facts))
        assert check.main([forged]) == 2


def test_rows_and_numbers_count_as_the_file_states_them(tmp_path, capsys):
    # Unit vectors with the sum zero have products -1/2; without that row one of them may be -1.
    X, path, forged = bo.PSD(3), tmp_path / "face.npz", tmp_path / "forged.npz"
    rows = [bo.diag(X) == 1, bo.quad_form(np.ones(3), X) == 0]
    saved(bo.Problem(bo.Minimize(X[0, 1]), rows).solve(tol=1e-9), path)
    fields = schema.Fields.of_file(path)
    assert check.main([path]) == 0
    facts = {k: v for k, v in fields._facts.items() if k != "format"}
    assert facts["blocks"][0]["null"] == 3
    nowhere = {name: fields._arrays[name][:0] for name in fields._arrays if name.startswith("faces_")}
    point = {"point_X0": np.array([[1.0, -1, 0], [-1, 1, 0], [0, 0, 1]]), "point_equations": np.arange(3)}
    for wrong, changed in (
        (nowhere | point, {"upper": (-0.9).hex()}),
        ({"faces_z": np.array([1.0, 1, -1])}, {}),
        ({"faces_sign": np.array([-1])}, {}),
        ({"faces_row": np.array([0])}, {}),
        ({}, {"blocks": [facts["blocks"][0] | {"null": -1}]}),
        ({"faces_row": fields._arrays["faces_row"].astype(float)}, {}),
    ):
        with forged.open("wb") as file:
            np.savez(file, **schema.sealed(fields._arrays | wrong, facts | changed))
        assert check.main([forged]) in (1, 2)
        assert "upper bound -0.9: proven" not in capsys.readouterr().out
    whole = {name: np.rint(fields._arrays[name]).astype(int) for name in ("lo", "hi")}
    with forged.open("wb") as file:  # the same numbers as integers
        np.savez(file, **schema.sealed(fields._arrays | whole, facts))
    assert check.main([forged]) == 0


@pytest.mark.parametrize("seed", range(20))
def test_eigenvalues_and_definiteness_of_integers(seed):
    rng = np.random.default_rng(seed)
    n, r = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    F = rng.integers(-4, 5, (n, r))
    W = F @ F.T
    assert check.is_psd(W.tolist())
    below = W - np.diag((np.arange(n) == n - 1).astype(int))
    assert check.is_psd(below.tolist()) == (np.linalg.eigvalsh(below)[0] > -1e-9)
    least = float(np.linalg.eigvalsh(below)[0])
    found = check.least_eigenvalue([[int(x) << 200 for x in row] for row in below], 200)
    size = abs(W).sum() + 1
    assert found <= least + 1e-12 * size
    assert found >= min(least - 0.01 * abs(least), 0) - 1e-12 * size


@pytest.mark.parametrize("seed", range(10))
def test_solutions_of_equations_are_within_the_radius(seed):
    rng = np.random.default_rng(seed)
    m, bits = int(rng.integers(1, 6)), 90
    A, b = rng.integers(-9, 10, (m, m + 4)), rng.integers(-9, 10, m)
    if np.linalg.matrix_rank(A) < m:
        pytest.skip("dependent rows")
    rows = [{p: (int(a) << bits, 0) for p, a in enumerate(row) if a} for row in A]

    step = np.linalg.lstsq(A.astype(float), b.astype(float), rcond=None)[0]
    near = [round(x * 2.0**20) << bits - 20 for x in step]
    lacks = [
        ((int(v) << 2 * bits) - check.dot(row, [(x, 0) for x in near])[0], 0)
        for v, row in zip(b, rows, strict=True)
    ]
    movable = set(range(m + 4))
    radius = check.distance(rows, movable, lacks, bits) / 2.0**bits
    left = np.array([v for v, _ in lacks], dtype=float) / 2.0 ** (2 * bits)
    assert np.linalg.norm(np.linalg.lstsq(A.astype(float), left, rcond=None)[0]) <= 1.0001 * radius
    assert radius <= 1e3 * np.linalg.norm(left) * np.linalg.cond(A) / np.linalg.norm(A, 2)
    with pytest.raises(check.Unproven, match="independent"):
        check.distance([*rows, rows[0]], movable, [(1, 0)] * (m + 1), bits)


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
        fields = schema.Fields.of_file(path)
        points = [key for key in fields._arrays if key in ("y", "X0") or key.startswith("point_")]
        points = [key for key in points if fields._arrays[key].dtype.kind == "f" and fields._arrays[key].size]
        for _ in range(12):
            arrays, key = dict(fields._arrays), points[rng.integers(len(points))]
            change = 10.0 ** rng.integers(-6, 1) * rng.normal(size=arrays[key].shape)
            arrays[key] = arrays[key] + (change + change.T if change.ndim == 2 else change)
            with forged.open("wb") as file:
                facts = {k: v for k, v in fields._facts.items() if k != "format"}
                np.savez(file, **schema.sealed(arrays, facts))
            lower, upper = bounds(forged)
            assert lower is None or lower <= value + room, name
            assert upper is None or upper >= value - room, name
    assert "NOT" not in capsys.readouterr().out
