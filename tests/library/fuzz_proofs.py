"""Targets of `fuzz.py`: proven bounds, conflicts and derivatives.

A proof is judged by the optimum that a problem has by construction, or by enumeration; a conflict by
Clarabel; a derivative by differences of answers.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Hashable
from pathlib import Path

import block_truth
import numpy as np
import truth
from fuzz_values import QUICK, hostile, optional, require, sensible, symmetric, unmodified

import bregopt as bo
from bregopt.layers import ProblemFunction

DIVERGENCES = {"frobenius": bo.frobenius_div, "logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}
_STABLE = ("complementary", "variables", "cut", "margin", "game", "nearness", "feasibility", "zero")


# --- Rows and variables that depend on each other ------------------------------------------------------


def dependent(rng):
    """Solve a problem of known optimum beside rows of zeros, sums of rows, and variables that others replace.

    The multipliers and a complementary pair of matrices are chosen; all data are integers, so that sums of
    rows hold, or contradict each other, exactly. ``X`` is not zero: one in 300 problems in which it is ends
    `inaccurate`, as sums of rows then hold by variables alone.
    """
    n, m, k = int(rng.integers(1, 6)), int(rng.integers(1, 5)), int(rng.integers(0, 4))
    G = rng.integers(-2, 3, (m, n, n)) * (rng.random((m, 1, 1)) < 0.8).astype(float)
    G += G.transpose(0, 2, 1)
    B = rng.integers(-2, 3, (m, max(k - 1, 0))) @ rng.integers(-1, 2, (max(k - 1, 0), k)).astype(float)
    r = int(rng.integers(1, n + 1))
    X0, Z0 = np.diag(np.arange(n) < r).astype(float), np.diag(np.arange(n) >= r).astype(float)
    y, u0 = rng.integers(-2, 3, m).astype(float), rng.integers(-2, 3, k).astype(float)
    b = np.einsum("kij,ij->k", G, X0) + B @ u0
    sums = rng.integers(-1, 2, (int(rng.integers(0, 3)), m)).astype(float)
    G, B, b = (
        np.concatenate([G, np.tensordot(sums, G, 1)]),
        np.concatenate([B, sums @ B]),
        np.append(b, sums @ b),
    )
    contradicts = len(sums) > 0 and rng.random() < 0.5
    b[-1] += contradicts
    C, c = Z0 + np.tensordot(y, G[:m], 1), B[:m].T @ y
    X, u = bo.PSD(n), bo.Variable(k) if k else None
    rows = [
        bo.inner(A, X) + (0 if u is None else v @ u) == right for A, v, right in zip(G, B, b, strict=True)
    ]
    problem = bo.Problem(bo.Minimize(bo.inner(C, X) + (0 if u is None else c @ u)), rows)
    try:
        found = problem.solve(**QUICK)
    except bo.InfeasibleRowError:
        require(contradicts, "a feasible row is refused")
        return "refused"
    if contradicts:
        require(found.status == "infeasible", f"{found.status}, contradicting rows")
        return found.status
    require(found.status.startswith("optimal"), f"{found.status} of a problem with an optimum")
    value = float(np.sum(C * X0) + c @ u0)
    if found.status == "optimal":
        require(abs(found.value - value) <= 1e-4 * (1 + abs(value)), f"{found.value} for {value}")
    return found.status


# --- Bounds -------------------------------------------------------------------------------------------


def known_case(rng):
    """Return a random problem of known value: of many blocks, of a family of `truth`, or ill-posed."""
    if rng.random() < 0.5:
        kind = str(rng.choice(block_truth.KINDS))
        orders = block_truth.orders_of(rng, int(rng.integers(1, 6)), str(rng.choice(block_truth.ORDERS)))
        blocks = block_truth.many_blocks(rng, orders, kind)
        return blocks.scaled(*10.0 ** rng.choice([0, 0, -6, 6, -12, 12, -40, 40], 2)).case(kind, kind)
    family = truth.FAMILIES[rng.integers(len(truth.FAMILIES))]
    cases = list(family(rng, 1))
    return cases[rng.integers(len(cases))]


def proofs(rng):
    """Prove the bounds of a problem of known value; the value lies between them."""
    case = known_case(rng)
    problem = case.make()
    options = {"tol": float(rng.choice(truth.TOLS)), **QUICK}
    if rng.random() < 0.2:
        options["max_iter"] = int(rng.integers(1, 9))
    given = {"resolve": bool(rng.random() < 0.7)}
    sound = True
    if rng.random() < 0.2:
        name = str(rng.choice(["trace_bound", "eigenvalue_bound", "resolve"]))
        given[name], sound = sensible(rng), name == "resolve"
    try:
        sol = problem.solve(**options)
    except bo.InfeasibleRowError:
        require(case.value == np.inf or case.family not in _STABLE, f"{case.family} has an infeasible row")
        return "infeasible row"
    with unmodified(*given.values()):
        proof = sol.verify(**given) if rng.random() < 0.7 else bo.verify(problem, sol, **given)
    maximize = isinstance(problem.objective, bo.Maximize)
    says = f"{case.family}, {case.name}: {proof.lower!r} to {proof.upper!r}, the optimum is {case.value!r}"
    for name, unproven in (("lower", -np.inf), ("upper", np.inf)):
        end = getattr(proof, name)
        require(not np.isnan(end), f"{says}: a bound is NaN")
        require(
            end != unproven or proof.reasons.get(name) or proof.lower == proof.upper, f"{says}: no reason"
        )
    if not sound:
        return "stated"
    require(proof.lower <= proof.upper, f"{says}: the bounds are crossed")
    if case.family in _STABLE:  # the rounding of its data moves the value of others by any amount
        off = 1e-9 * (case.unit + abs(case.value))
        require(proof.lower - off <= case.value <= proof.upper + off, says)
    if case.family == "infeasible" and not maximize:
        require(proof.upper == np.inf, says)
    if case.family == "unbounded":
        require(not proof.infeasible, says)
    if proof.certificate is not None and rng.random() < 0.3:
        path = Path("proof.npz")
        proof.certificate.save(path)
        again = bo.BoundCertificate.load(path)
        again.check()
        require(again.proven == proof.certificate.proven, f"{says}: {again.proven} from the file")
    return proof.proven.partition("<=")[0].strip()[:20] or "bounds"


def node_bounds(rng):
    """Bound the nodes of a tree for a maximum cut; no cut of a node has more."""
    n = int(rng.integers(2, 6))
    W = symmetric(rng, n) * 10.0 ** rng.choice([0, 0, -6, 6, -30, 30])
    X = bo.PSD(n)
    i, j = np.triu_indices(n, 1)
    edges = bo.between(X[i, j], -1, 1).named("edges")
    level = bo.Variable(lower=-1, upper=1, name="level")
    objective = bo.inner(W, X) + np.abs(W).max() * level
    problem = bo.Problem(bo.Maximize(objective), [bo.diag(X) == 1, edges, level <= X[0, n - 1]])
    signs = np.array(list(itertools.product([-1, 1], repeat=n)))
    products = signs[:, i] * signs[:, j]
    levels = products[:, i.tolist().index(0) + n - 2]
    values = np.einsum("ki,ij,kj->k", signs, W, signs)
    size = np.abs(W).sum()
    for _ in range(rng.integers(1, 4)):
        at = np.where(rng.random(len(i)) < 0.4, rng.choice([-1.0, 1.0], len(i)), np.nan)
        fixings = {[edges, "edges"][rng.integers(2)]: at}
        top = np.inf
        if rng.random() < 0.3:
            top = float(rng.choice([-1.0, 0.0, 0.5, 1.0]))
            fixings[[level, "level"][rng.integers(2)]] = top
        if rng.random() < 0.1:
            key = sensible(rng, len(i))
            fixings[key if isinstance(key, Hashable) else "no row"] = sensible(rng, len(i))
        if rng.random() < 0.1:
            fixings = {edges: hostile(rng, n)}
            problem.bound(fixings, **QUICK)
            continue
        with unmodified(at):
            found = problem.bound(fixings, **QUICK)
        inside = ((products == at) | np.isnan(at)).all(axis=1)
        inside &= (top == np.inf) | (levels >= top)
        if inside.any():
            best = values + np.abs(W).max() * np.minimum(levels, top)
            best = best[inside].max()
            says = f"bound {found.value!r} ({found.reason}) of a node with {best!r}"
            require(found.value >= best - 1e-12 * size, says)
        require(not np.isnan(found.value), "the bound is NaN")
    return "bounded"


# --- Conflicts ----------------------------------------------------------------------------------------


def violation(n, rows):
    """Return the least sum of violations of rows ``(A, a, sense, b)`` of a matrix and a boxed variable."""
    import cvxpy as cp

    X, u = cp.Variable((n, n), PSD=True), cp.Variable(bounds=[0, 2])
    total = 0
    for A, a, sense, b in rows:
        excess = cp.sum(cp.multiply(A, X)) + a * u - b
        total = total + cp.pos(excess if sense == "<=" else -excess)
    problem = cp.Problem(cp.Minimize(total))
    problem.solve(solver="CLARABEL")
    return float(problem.value)


def conflicts(rng):
    """Reduce contradictory rows; the rows of the conflict contradict each other, and no fewer do."""
    if optional("cvxpy") is None:
        return "skipped"
    n, m = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    scale = 10.0 ** rng.choice([0, 0, 0, -6, 6])
    root = rng.normal(size=(n, n))
    known = root @ root.T
    A, a = np.array([symmetric(rng, n) for _ in range(m)]), np.round(rng.normal(size=m), 1)
    a *= rng.random() < 0.5
    b = np.einsum("kij,ij->k", A, known) + a
    X, u = bo.PSD(n), bo.Variable(lower=0, upper=2 * scale)
    body = bo.inner(A, X) + a * u
    chosen = int(rng.integers(4))
    gap = float(rng.uniform(0.5, 3))
    weights = rng.uniform(0.5, 2, m)
    combined, level = np.einsum("k,kij->ij", weights, A), float(weights @ a)
    corner = np.zeros((n, n))
    corner[0, n - 1] = corner[n - 1, 0] = 0.5 if n > 1 else 1.0
    unit, units = np.eye(n)[None], np.eye(n)[:, :, None] * np.eye(n)[:, None, :]
    none, beyond = np.zeros(1), float(weights @ b) + gap
    # Each with the matrices and the coefficients of its rows.
    rows = [(body <= b * scale if rng.random() < 0.5 else body == b * scale, A, a)]
    rows += [
        [(bo.inner(combined, X) + level * u >= beyond * scale, combined[None], [level])],
        [(bo.trace(X) <= scale, unit, none), (bo.trace(X) >= (1 + gap) * scale, unit, none)],
        [(bo.diag(X) <= scale, units, np.zeros(n)), (X[0, n - 1] >= (1 + gap) * scale, corner[None], none)],
        [(bo.trace(X) - u <= -(2 + gap) * scale, unit, [-1.0])],
    ][chosen]
    rows = [rows[k] for k in rng.permutation(len(rows))]
    if rng.random() < 0.5:
        rows = [(row.named(f"row {k}"), *own) for k, (row, *own) in enumerate(rows)]
    divergence = DIVERGENCES[str(rng.choice(list(DIVERGENCES)))]
    objective = bo.trace(X) if rng.random() < 0.5 else divergence(X, np.eye(n) * scale)
    try:
        sol = bo.Problem(bo.Minimize(objective), [row for row, *_ in rows]).solve(**QUICK)
    except bo.InfeasibleRowError:
        return "infeasible row"
    require(sol.status not in ("optimal", "unbounded"), f"{sol.status} of contradictory rows")
    if sol.status != "infeasible":
        return sol.status
    options = {**QUICK, "tol": sensible(rng)} if rng.random() < 0.1 else QUICK
    conflict = sol.conflict(**options)
    str(conflict)
    by_number = []
    for row in conflict:
        _, matrices, coefficients = rows[row.constraint]
        at = row.index[0] if row.index else 0
        require(row.sense in ("<=", ">="), f"sense {row.sense!r} of {row}")
        by_number.append((matrices[at], coefficients[at], row.sense, row.bound / scale))
    require(by_number, "a conflict without rows")
    least = violation(n, by_number)
    says = f"{len(by_number)} rows of {conflict}"
    require(least > 1e-7, f"{says} are met up to {least:.1e}")
    if conflict.irreducible:
        for k in range(len(by_number)):
            rest = by_number[:k] + by_number[k + 1 :]
            fewer = violation(n, rest) if rest else 0.0
            require(fewer < 1e-3 * max(1.0, least), f"{says}: without row {k} they miss {fewer:.1e} still")
    return "conflict"


# --- Derivatives --------------------------------------------------------------------------------------


def derivatives(rng):
    """Compare the derivative of a nearness problem with differences of answers, and with its adjoint."""
    n, m = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    name = str(rng.choice(list(DIVERGENCES)))
    M = rng.normal(size=(n, n))
    S = M @ M.T / n + 0.3 * np.eye(n) if name != "frobenius" else symmetric(rng, n)
    A = np.array([symmetric(rng, n) for _ in range(m)])
    inside = (lambda R: R @ R.T / n + 0.2 * np.eye(n))(rng.normal(size=(n, n)))
    b = np.einsum("kij,ij->k", A, inside)
    X, X0, p = bo.PSD(n), bo.Parameter((n, n), value=S), bo.Parameter(m, value=b)
    body = bo.inner(A, X)
    sense = int(rng.integers(3 if name == "frobenius" else 2))  # other penalties need bounds above zero
    rows = [[body == p], [body <= p], [bo.soft(body <= p, gamma=2.0)]][sense]
    if rng.random() < 0.3:
        rows.append(bo.trace(X) == np.trace(inside))
    problem = bo.Problem(bo.Minimize(DIVERGENCES[name](X, X0)), rows)
    sol = problem.solve(tol=1e-9, **QUICK)
    if sol.status != "optimal":
        return sol.status
    with warnings.catch_warnings():
        warnings.simplefilter("error", bo.DataWarning)
        try:
            derivative = sol.derivative()
        except bo.DataWarning:
            return "near a kink"
    if rng.random() < 0.15:
        derivative.vjp(hostile(rng, n))
        derivative.jvp(parameters={p: hostile(rng, m)})
    dS, db, G = symmetric(rng, n), rng.normal(size=m), symmetric(rng, n)
    with unmodified(dS, db, G):
        dX = np.asarray(derivative.jvp(parameters={X0: dS, p: db}).X)
        back = derivative.vjp(G).parameters
    forward, backward = np.vdot(G, dX), np.vdot(back[X0], dS) + np.vdot(back[p], db)
    size = np.linalg.norm(G) * np.linalg.norm(dX) + 1e-6
    require(abs(forward - backward) <= 1e-6 * size, f"{name}: {forward} forward, {backward} backward")
    if sol.differentiability().margin < 1e-2:
        return "near a kink"
    function = ProblemFunction(problem, [X0, p], [X], options={"tol": 1e-9, **QUICK})
    h = 1e-5
    (ahead,), (behind,) = (function.value(S + step * dS, b + step * db)[0] for step in (h, -h))
    off = np.linalg.norm((ahead - behind) / (2 * h) - dX)
    require(off <= 1e-3 * (1 + np.linalg.norm(dX)), f"{name}: the derivative is off by {off}, of {dX}")
    return "smooth"
