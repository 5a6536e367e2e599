"""The checker of one file: problems of exact optima, statements of bregopt, forged files, and its lemmas."""

import ast
import shutil
import subprocess
import sys
import warnings
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from rational import KINDS, pair, problem

import bregopt as bo
import bregopt_check as check
from bregopt.rigorous import schema

LINEAR = [kind for kind in KINDS if kind not in ("soft", "face")]


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
            found.append(check.proven(P, lists, side))
        except check.Unproven:
            found.append(None)
    return found


@pytest.mark.parametrize("kind", LINEAR)
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


@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_changed_points_never_exclude_the_optimum(seed, tmp_path):
    rng = np.random.default_rng(seed)
    known = problem(rng, LINEAR[seed])
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
    free = bo.Problem(bo.Minimize(bo.trace(X) - 2 * X[0, 1]), [X[0, 1] - X[1, 2] == 0.3])
    solution = free.solve()
    solution.verify(trace_bound=10.0).certificate.save(tmp_path / "given.npz")
    assert check.main([tmp_path / "given.npz"]) == 0
    assert "given: the trace of X is at most 10.0" in capsys.readouterr().out


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
    for file in (source, source.with_name("bregopt_check_cuts.py")):
        tree = ast.parse(file.read_text())
        modules = {
            name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
        }
        modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert modules <= {*sys.stdlib_module_names, "bregopt_check", "bregopt_check_cuts"}
    X = bo.PSD(20)
    C = np.random.default_rng(1).normal(size=(20, 20))
    saved(bo.Problem(bo.Minimize(bo.inner(C + C.T, X)), [bo.diag(X) == 1]).solve(), tmp_path / "cut.npz")
    shutil.copy(source, tmp_path / "alone.py")
    command = [sys.executable, "-I", "-S", "alone.py", "cut.npz"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.count(": proven") == 2


def test_a_cut_needs_the_second_file(tmp_path, capsys, monkeypatch):
    bo.max_cut([(0, 1), (1, 2), (2, 0)], exact=True).certificate.save(tmp_path / "cut.npz")
    assert check.main([tmp_path / "cut.npz"]) == 0
    assert "the cut of weight 2.0 is optimal: proven" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "bregopt_check_cuts", None)
    assert check.main([tmp_path / "cut.npz"]) == 2
    assert "download bregopt_check_cuts.py" in capsys.readouterr().out


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
    assert least - 0.01 * abs(least) - 1e-12 * size <= found <= least + 1e-12 * size


@pytest.mark.parametrize("seed", range(10))
def test_solutions_of_equations_are_within_the_radius(seed):
    rng = np.random.default_rng(seed)
    m, one = int(rng.integers(1, 6)), 1 << 90
    A, b = rng.integers(-9, 10, (m, m + 4)), rng.integers(-9, 10, m)
    if np.linalg.matrix_rank(A) < m:
        pytest.skip("dependent rows")
    rows = [[(p, int(a) * one, 0) for p, a in enumerate(row) if a] for row in A]

    def missing(change):
        x = [(change.get(p, 0), 0) for p in range(m + 4)]
        return [(int(b[k]) * one**2 - check.dot(row, x)[0], 0) for k, row in enumerate(rows)]

    change, radius = check.solve(rows, set(range(m + 4)), missing, one)
    pivots = list(change)
    exact = np.linalg.solve(A[:, pivots], b)
    assert radius < 1 << 20
    for p, x in zip(pivots, exact, strict=True):
        assert abs(float(Fraction(change[p], one)) - x) < 1e-9 * (1 + abs(x))
    assert max(abs(v) for v, _ in missing(change)) <= sum(abs(int(a)) for a in A.ravel()) * (radius + 1) * one
