"""Targets of `fuzz.py`: determinants, designs, channels and correlations, with their optimality."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from fuzz_values import QUICK, hostile, optional, require, symmetric, unmodified

import bregopt as bo

FORMATS = ("coo", "csr", "csc", "lil", "dok", "dia", "bsr")
SCALES = (*4 * (1.0,), *2 * (1e-6, 1e6), 1e-30, 1e30, 1e-80, 1e80, 1e-300, 1e300)
NEARNESS = ("frobenius", "logdet", "von_neumann", "largest_entry", "spectral")
UNLIMITED = (bo.water_filling, bo.pairwise_correlation, bo.shrink_correlation)  # which take no time limit


def some(rng, **values):
    """Return some of the keyword arguments."""
    return {name: value for name, value in values.items() if rng.random() < 0.3}


def points_of(rng, n, m):
    """Return m rows of length n: in general position, repeated, or dependent."""
    X = rng.normal(size=(m, n))
    kind = rng.integers(5)
    if kind == 1:
        X = X[rng.integers(m, size=m)]
    elif kind == 2:
        X[:, rng.integers(n)] = 0.0
    elif kind == 3:
        X = np.round(X)
    return X


def covariance(rng, n):
    """Return a covariance matrix, definite or of low rank, or a diagonal or zero one."""
    X = points_of(rng, n, int(rng.integers(1, 3 * n)))
    S = X.T @ X / len(X)
    return [S, S + 0.1 * np.eye(n), np.diag(S.diagonal()), np.zeros((n, n))][
        rng.choice(4, p=[0.4, 0.4, 0.15, 0.05])
    ]


def dressed(rng, A):
    """Return an array as another kind of container: a list, a sparse matrix, a DataFrame, with its labels."""
    pandas, kind = optional("pandas"), rng.integers(6)
    if kind == 0:
        return A.tolist()
    if kind == 1:
        return np.asfortranarray(A)
    if kind == 2 and A.ndim == 2 and A.dtype in (float, bool, int):
        return getattr(sp, f"{rng.choice(FORMATS)}_{rng.choice(['array', 'matrix'])}")(A)
    if kind == 3 and pandas is not None and A.ndim == 2:
        names = [f"v{k}" for k in range(A.shape[1])]
        return pandas.DataFrame(A, names if len(A) == A.shape[1] else None, names)
    return A


def family(rng):
    """Call a function of determinants, designs or correlations with good values, but for one or two."""
    n = int(rng.integers(1, 5))
    S, X, b = covariance(rng, n) + np.eye(n), rng.normal(size=(3 * n, n)), rng.random(3 * n)
    C = S / np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    mask = rng.random((n, n)) < 0.5
    mask |= mask.T
    pairs, vector, ones = np.argwhere(np.triu(mask, 1)), rng.random(n) + 0.1, np.ones(3 * n)
    stack = np.array([C, np.eye(n), S])
    lasso_of = {"weights": np.abs(S), "pattern": mask, "penalize_diagonal": True}
    design_of = {"lower": 0.0, "upper": ones, "costs": b, "budget": 1.0, "prior": S, "tol": 1e-6}
    near = {
        "fixed": pairs,
        "lower": -0.5,
        "upper": np.full((n, n), 0.9),
        "min_eigenvalue": 0.1,
        "weights": vector,
    }
    near |= {"max_condition": 20.0, "missing": "unknown", "divergence": rng.choice(NEARNESS)}
    asked = {"groups": rng.integers(2, size=n), "max_rank": 1, "suggest": True}
    signatures = [
        (bo.graphical_lasso, {"S": S, "alpha": 0.1}, {**lasso_of, "warm_start": S}),
        (bo.graphical_lasso_path, {"S": S, "alphas": [0.5, 0.1]}, lasso_of),
        (bo.covariance_selection, {"S": S, "edges": pairs}, {"tol": 1e-4}),
        (bo.max_det_completion, {"S": S, "edges": mask}, {"tol": 1e-4}),
        (bo.min_volume_ellipsoid, {"points": X}, {"center": vector, "tol": 1e-4}),
        (bo.max_volume_inscribed_ellipsoid, {"A": X, "b": b}, {"tol": 1e-4}),
        (bo.d_optimal, {"candidates": X}, design_of),
        (bo.a_optimal, {"candidates": X}, {**design_of, "K": S}),
        (bo.e_optimal, {"candidates": X}, design_of),
        (bo.water_filling, {"gains": b, "power": 2.0}, {}),
        (bo.mimo_capacity, {"H": X, "power": 2.0}, {"antenna_power": vector, "tol": 1e-4}),
        (bo.pairwise_correlation, {"returns": X}, {"min_samples": 2}),
        (
            bo.shrink_correlation,
            {"A": C},
            {"target": C, "fixed": pairs, "min_eigenvalue": 0.1, "weights": mask * 1.0},
        ),
        (
            bo.factor_correlation,
            {"A": C, "k": 1},
            {"min_specific_variance": 0.1, "weights": vector, "starts": 2},
        ),
        (bo.nearest_covariance, {"S": S}, near),
        (bo.nearest_correlation, {"A": C}, {**near, **asked}),
        (bo.nearest_correlation, {"A": stack}, {**near, **asked, "warm_start": "chain", "weights": stack}),
    ]
    function, needed, others = signatures[rng.integers(len(signatures))]
    given = needed | some(rng, **others)
    for name in rng.choice(list(given), size=rng.choice([0, 1, 1, 2])):
        given[str(name)] = hostile(rng, n)
    given = {
        name: dressed(rng, value) if isinstance(value, np.ndarray) else value for name, value in given.items()
    }
    limit = {} if function in UNLIMITED else QUICK
    with unmodified(*given.values()):
        status = getattr(function(**given, **limit), "status", "several")
        return status if isinstance(status, str) else "several"


# --- Sparse inverses and completions ------------------------------------------------------------------


def lasso(rng):
    """Estimate a sparse inverse covariance; check its value, its bound and the zeros that it must have."""
    n = int(rng.integers(1, 7))
    scale = float(rng.choice(SCALES))
    S = covariance(rng, n) * scale
    alpha = float(rng.choice([0.0, 0.01, 0.1, 0.5, 5.0])) * scale
    w = np.abs(symmetric(rng, n))
    w[w < 0.2] = 0.0
    w = np.where(~np.eye(n, dtype=bool) & (w > 1), np.inf, w)
    pattern = rng.random((n, n)) < 0.6
    pattern |= pattern.T
    weights = w if rng.random() < 0.3 else None
    pattern = pattern if rng.random() < 0.3 else None
    diagonal = bool(rng.integers(2))
    given = dressed(rng, S)
    with unmodified(S, w):
        found = bo.graphical_lasso(given, alpha, weights, pattern, penalize_diagonal=diagonal, **QUICK)
    penalty = alpha * np.where(np.isinf(w), 0.0, w) if weights is not None else np.full((n, n), alpha)
    if not diagonal:
        np.fill_diagonal(penalty, 0.0)
    must = np.isinf(w) if weights is not None else np.zeros((n, n), dtype=bool)
    must |= False if pattern is None else ~(pattern | np.eye(n, dtype=bool))
    penalty[must] = np.inf
    says = f"{found.status}, scale {scale:g}, alpha {alpha:g}"
    if found.X is None:
        least = np.linalg.eigvalsh(S / scale)[0]
        require(found.status == "unbounded" and least < 1e-6, f"{says}: no answer")
        R = np.asarray(found.ray.X)
        R = R / np.abs(R).max()
        price = float(np.sum(S * R) + np.sum(np.where(R == 0, 0.0, penalty) * np.abs(R)))
        require(np.linalg.eigvalsh(R)[0] >= -1e-9, f"{says}: the ray is not psd")
        require(price <= 1e-6 * scale, f"{says}: the ray costs {price:g}")
        return found.status
    X, U = np.asarray(found.X), np.asarray(found.duals[0])
    require((X == X.T).all() and (X[must] == 0).all(), f"{says}: an entry that must be zero is not")
    sign, logdet = np.linalg.slogdet(X * scale)
    require(sign > 0, f"{says}: not positive definite")
    terms = np.sum(S * X), np.sum(np.where(must, 0.0, penalty) * np.abs(X))
    value = float(sum(terms)) - logdet + n * np.log(scale)
    size = 1 + np.abs(S * X).sum() + terms[1] + abs(n * np.log(scale)) + abs(logdet)
    require(abs(value - found.value) <= 1e-8 * size, f"{says}: value {found.value}, which is {value}")
    require(found.dual_value <= found.value + 1e-9 * size, f"{says}: bound {found.dual_value} above {value}")
    if np.isfinite(found.dual_value):
        require((np.abs(U) <= penalty * (1 + 1e-9)).all(), f"{says}: |U| above the penalty")
        bound = np.linalg.slogdet((S + U) / scale)[1] + n + n * np.log(scale)
        require(
            abs(bound - found.dual_value) <= 1e-7 * size, f"{says}: bound {found.dual_value}, not {bound}"
        )
    if found.status == "optimal":
        gap = (found.value - found.dual_value) / size
        require(gap <= 1e-5, f"{says}: gap {gap:.1e}")
        known = S.diagonal() + np.where(np.isinf(penalty.diagonal()), 0.0, penalty.diagonal())
        at = n + np.log(known).sum()
        require(found.value <= at + 1e-5 * size, f"{says}: the diagonal answer has {at}, less than {value}")
        inverse = np.linalg.inv(X * scale)
        G = np.abs(S / scale - inverse)
        # A gap g moves X by sqrt(2 g) in the metric of its inverse; the value has n log(scale).
        moved = np.sqrt(2 * max(found.value - found.dual_value, 0.0)) * np.linalg.norm(inverse, 2)
        off = 1e-2 * np.abs(S / scale).max() + 1e-2 + 2 * moved
        require((G <= penalty / scale + off).all(), f"{says}: gradient {G.max():g}")
    return found.status


def completions(rng):
    """Complete a matrix, or select a covariance, on a random graph; check entries and zeros."""
    n = int(rng.integers(1, 7))
    scale = float(rng.choice(SCALES))
    S = covariance(rng, n)
    definite = np.linalg.eigvalsh(S)[0] > 1e-3
    S = S * scale
    mask = rng.random((n, n)) < rng.choice([0.0, 0.4, 1.0])
    mask |= mask.T
    np.fill_diagonal(mask, False)
    pairs = np.argwhere(np.triu(mask))
    edges = [mask, pairs, pairs.tolist(), sp.csr_array(mask.astype(float))][rng.integers(4)]
    select = bool(rng.integers(2))
    partial = np.where(mask | np.eye(n, dtype=bool), S, np.nan)
    with unmodified(S, partial):
        if select:
            found = bo.covariance_selection(dressed(rng, S), edges, **QUICK)
        elif rng.random() < 0.5:
            found = bo.max_det_completion(partial, **QUICK)
        else:
            found = bo.max_det_completion(dressed(rng, S), edges, **QUICK)
    kind = "selection" if select else "completion"
    says = f"{found.status}, {kind}, n {n}, {len(pairs)} edges, scale {scale:g}"
    if found.X is None:
        require(not definite, f"{says}: no answer")
        return found.status
    X = np.asarray(found.X)
    unit = np.sqrt(X.diagonal())
    require(np.isfinite(unit).all() and (unit > 0).all(), f"{says}: the diagonal of X")
    require(
        np.linalg.eigvalsh(X / np.outer(unit, unit))[0] > -1e-6, f"{says}: X is not positive semidefinite"
    )
    if found.status != "optimal":
        return found.status
    logdet = 2 * np.log(unit).sum() + np.linalg.slogdet(X / np.outer(unit, unit))[1]
    value = logdet - (np.sum(np.where(mask | np.eye(n, dtype=bool), S, 0.0) * X) if select else 0.0)
    size = 1 + abs(value) + abs(logdet) + n * abs(np.log(scale))
    require(abs(value - found.value) <= 1e-4 * size, f"{says}: value {found.value}, which is {value}")
    if definite:
        root = np.sqrt(S.diagonal())
        inverse = np.linalg.inv(X / np.outer(unit, unit)) / np.outer(unit, unit)
        kept, free = (inverse, X) if select else (X, inverse)
        own = np.sqrt(free.diagonal())
        off = np.abs((kept - S) / np.outer(root, root))[mask | np.eye(n, dtype=bool)].max()
        zero = np.abs(free / np.outer(own, own))[~(mask | np.eye(n, dtype=bool))].max(initial=0.0)
        require(off <= 1e-2, f"{says}: given entries are off by {off:.1e}")
        require(zero <= 1e-2, f"{says}: the inverse has {zero:.1e} outside the graph")
    return found.status


# --- Ellipsoids ---------------------------------------------------------------------------------------


def ellipsoids(rng):
    """Enclose points, or fill a polytope; check containment and the bound from the weights."""
    d = int(rng.integers(1, 5))
    scale = float(rng.choice(SCALES))
    if rng.random() < 0.5:
        return _enclosed(rng, d, scale)
    return _inscribed(rng, d, scale)


def _enclosed(rng, d, scale):
    X = points_of(rng, d, int(rng.integers(1, 12))) * scale + rng.choice([0.0, 0.0, 100.0]) * scale
    center = None if rng.random() < 0.7 else rng.normal(size=d) * scale
    with unmodified(X):
        found = bo.min_volume_ellipsoid(dressed(rng, X), center, time_limit=5.0)
    says = f"{found.status}, {len(X)} points in dimension {d}, scale {scale:g}"
    require(found.contains(X).all(), f"{says}: a point is outside")
    c, E, u = (np.asarray(value) for value in (found.center, found.shape, found.weights))
    require(np.isfinite(E).all() and (E.diagonal() > 0).all(), f"{says}: the shape {E.diagonal()}")
    Y = (X - c) / scale
    far = np.einsum("ij,jk,ik->i", Y, np.linalg.pinv(E / scale / scale), Y)
    require(far.max() <= 1 + 1e-4, f"{says}: a point at distance {far.max()}")
    require(abs(u.sum() - 1) <= 1e-9 and u.min() >= 0, f"{says}: weights {u}")
    mean = u @ (X / scale) if center is None else center / scale
    M = (X / scale - mean).T * u @ (X / scale - mean) * d
    gap = found.log_volume - found.log_volume_bound
    require(gap >= 0, f"{says}: the bound is above the volume")
    differ = np.linalg.slogdet(E / scale / scale)[1] / 2 - np.linalg.slogdet(M)[1] / 2
    require(abs(differ - gap) <= 1e-5, f"{says}: the proven gap is {gap}, the weights prove {differ}")
    require(found.status != "optimal" or gap <= 1e-5, f"{says}: gap {gap}")
    return found.status


def _inscribed(rng, d, scale):
    A = points_of(rng, d, int(rng.integers(1, 12)))
    b = rng.choice([0.0, 1.0, 1.0, 1.0], size=len(A)) + rng.normal(size=len(A)) * rng.choice([0.0, 0.1, 1.0])
    b, units = b * scale, 10.0 ** rng.choice([0.0, 0.0, -5.0, 5.0], size=len(A))
    A, b = A * units[:, None], b * units
    with unmodified(A, b):
        found = bo.max_volume_inscribed_ellipsoid(dressed(rng, A), b, time_limit=5.0)
    says = f"{found.status}, {len(A)} sides in dimension {d}, scale {scale:g}"
    A, b = A / units[:, None], b / units / scale
    if found.farkas is not None:
        y = np.asarray(found.farkas) * units
        y = y / y.sum()
        require(found.status == "infeasible" and y.min() >= 0, f"{says}: the Farkas vector {y}")
        require(np.abs(A.T @ y).max() <= 1e-7 and b @ y <= 1e-7, f"{says}: the Farkas vector proves nothing")
        return found.status
    if found.ray is not None:
        w = np.asarray(found.ray) / np.abs(found.ray).max()
        require(found.status == "unbounded" and (A @ w).max() <= 1e-7, f"{says}: the ray leaves the polytope")
        return found.status
    c, E = np.asarray(found.center) / scale, np.asarray(found.shape) / scale / scale
    reach = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", A, E, A), 0.0)) + A @ c - b
    require(
        (reach <= 1e-9 * (1 + np.abs(b))).all(),
        f"{says}: the ellipsoid leaves the polytope by {reach.max():g}",
    )
    require(found.log_volume <= found.log_volume_bound, f"{says}: the volume is above the bound")
    gap = found.log_volume_bound - found.log_volume
    require(found.status != "optimal" or gap <= 1e-5, f"{says}: gap {gap}")
    return found.status


# --- Designs and channels -----------------------------------------------------------------------------


def designs(rng):
    """Find an optimal design; check its weights and the theorem of Kiefer and Wolfowitz at its point."""
    n = int(rng.integers(1, 5))
    m, whole = int(rng.integers(1, 12)), rng.random() < 0.2
    scale = float(rng.choice([s for s in SCALES if s < 1e100]))  # its square is finite
    rows = points_of(rng, n, m)
    X = rows * scale
    Ms = np.einsum("mi,mj->mij", rows, rows)
    name = str(rng.choice(["d", "a", "e"]))
    given = {}
    if rng.random() < 0.3:
        given["upper"] = float(rng.choice([1.0, 2.0 / m, 1.0 / m]))
    if rng.random() < 0.2:
        given["lower"] = float(rng.choice([0.0, 0.5 / m, 1.0 / m]))
    if rng.random() < 0.2:
        given["costs"], given["budget"] = rng.random(m), float(rng.choice([0.3, 0.6, 1.0]))
    prior = np.eye(n) * (rng.random() < 0.3) * float(rng.choice([1e-6, 1.0, 1e3]))
    if prior.any():
        given["prior"] = prior * scale * scale
    with unmodified(X):
        design = getattr(bo, f"{name}_optimal")
        found = design(Ms * scale * scale if whole else dressed(rng, X), **given, **QUICK)
    says = f"{found.status}, {name}, {m} candidates of {n} parameters, scale {scale:g}"
    w = np.asarray(found.weights)
    require(abs(w.sum() - 1) <= 1e-9, f"{says}: the weights have the sum {w.sum()}")
    require((w >= given.get("lower", 0.0) - 1e-12).all(), f"{says}: a weight below its bound")
    require((w <= given.get("upper", 1.0) + 1e-9).all(), f"{says}: a weight above its bound")
    if "costs" in given:
        require(given["costs"] @ w <= given["budget"] * (1 + 1e-9), f"{says}: above the budget")
    M = np.einsum("m,mij->ij", w, Ms) + prior
    values, vectors = np.linalg.eigh(M)
    off = np.abs(np.asarray(found.information) / scale / scale - M).max()
    require(off <= 1e-9 * np.abs(M).max(), f"{says}: the information is off by {off:g}")
    if values[0] <= 1e-10 * values[-1]:
        return found.status
    inverse = (vectors / values) @ vectors.T
    unit = {"d": 2 * n * np.log(scale), "a": scale**-2.0, "e": scale**2.0}[name]
    own = {"d": np.log(values).sum(), "a": np.trace(inverse), "e": values[0]}[name]
    at, bound = (
        (found.value - unit, found.bound - unit) if name == "d" else (found.value / unit, found.bound / unit)
    )
    require(
        abs(at - own) <= 1e-6 * (1 + abs(own) + abs(unit) * (name == "d")), f"{says}: {at}, which is {own}"
    )
    require(found.status != "optimal" or found.gap <= 1e-8, f"{says}: gap {found.gap}")
    worse = (bound - at) if name != "a" else (at - bound)
    require(worse >= -1e-9 * (1 + abs(at)) - 1e-9 * abs(unit) * (name == "d"), f"{says}: {at} beyond {bound}")
    if found.status == "optimal" and not given and name in "da":
        S = inverse if name == "d" else inverse @ inverse
        sensitivity = np.einsum("mij,ij->m", Ms, S)
        level = n if name == "d" else np.trace(inverse)
        require(
            sensitivity.max() <= level * (1 + 1e-5), f"{says}: sensitivity {sensitivity.max()} above {level}"
        )
    return found.status


def channels(rng):
    """Allocate power to channels; check the conditions of Karush, Kuhn and Tucker."""
    scale = 10.0 ** rng.choice([0, 0, -6, 6, -30, 30, -69, 69])
    power = 10.0 ** rng.choice([0, 0, -6, 6, -30, 30, -69, 69])
    n = int(rng.integers(1, 6))
    if rng.random() < 0.5:
        g = rng.random(n) ** 4
        g = np.round(g, 1) if rng.random() < 0.5 else g
        g = g * (10.0 ** rng.choice([0, 0, -20, 20, -200], size=n) if rng.random() < 0.3 else 1.0) * scale
        with unmodified(g):
            found = bo.water_filling(g if rng.random() < 0.5 else g.tolist(), power)
    else:
        shape = int(rng.integers(1, 5)), n
        H = rng.normal(size=shape) + (1j * rng.normal(size=shape) if rng.random() < 0.5 else 0.0)
        H = H[:, :1] * np.ones(n) if rng.random() < 0.2 else H
        own = float(rng.choice([0.1, 0.5, 10.0])) * power
        bounds = [None, own, rng.random(n) * own + 1e-3 * own][rng.integers(3)]
        with unmodified(H):
            found = bo.mimo_capacity(H * np.sqrt(scale), power, bounds)
        return _covariance_meets(found, H, scale, power, bounds)
    p = np.asarray(found.power)
    says = f"{found.status}, gains {g}, power {power:g}"
    require(np.isfinite(p).all() and p.min() >= 0, f"{says}: powers {p}")
    require(abs(p.sum() / power - 1) <= 1e-9, f"{says}: the powers have the sum {p.sum():g}")
    require(0 <= found.capacity <= found.bound, f"{says}: {found.capacity} above the bound {found.bound}")
    price = g / (1 + g * p)
    require((price <= price[p > 0].min() * (1 + 1e-6)).all(), f"{says}: prices {price} at powers {p}")
    capacity = np.log1p(g * p).sum() / np.log(2)
    require(
        abs(capacity - found.capacity) <= 1e-9 * capacity, f"{says}: {found.capacity}, which is {capacity}"
    )
    require(found.status == "optimal", f"{says}: an exact answer")
    return found.status


def _covariance_meets(found, H, scale, power, bounds):
    """Check the covariance of a channel matrix."""
    Q = np.asarray(found.covariance) / power
    own = Q.diagonal().real
    says = f"{found.status}, {H.shape[0]} x {H.shape[1]}, gain {scale:g}, power {power:g}"
    require(np.isfinite(Q).all() and np.linalg.eigvalsh(Q)[0] >= -1e-9, f"{says}: the covariance is not psd")
    require(own.sum() <= 1 + 1e-9, f"{says}: the power is {own.sum()} of the given one")
    limits = np.inf if bounds is None else np.asarray(bounds) / power
    require((own <= limits * (1 + 1e-9)).all(), f"{says}: the powers {own} of antennas, bounds {limits}")
    values, vectors = np.linalg.eigh(Q)
    half = H @ (vectors * np.sqrt(np.maximum(values, 0.0) * scale * power))
    capacity = np.log1p(np.linalg.svd(half, compute_uv=False) ** 2).sum() / np.log(2)
    if scale * power <= 1e9:  # round-off of Q changes the capacity beyond
        off = abs(capacity - found.capacity)
        require(off <= 1e-6 * capacity, f"{says}: {found.capacity}, which is {capacity}")
    require(found.capacity <= found.bound * (1 + 1e-12), f"{says}: above its bound")
    n = len(own)
    for share in (np.full(n, 1 / n), *np.eye(n)):  # feasible powers of antennas
        p = np.minimum(share, limits)
        gains = np.linalg.svd(H * np.sqrt(p * scale * power), compute_uv=False) ** 2
        if scale * power > 1e9:
            break
        at = np.log1p(gains).sum() / np.log(2)
        require(not at > found.bound * (1 + 1e-6), f"{says}: {at} above the bound {found.bound}")
    require(found.status != "optimal" or found.gap <= 1e-6, f"{says}: gap {found.gap}")
    return found.status


# --- Correlations -------------------------------------------------------------------------------------


def correlation(rng, n):
    """Return a correlation matrix, of full or of low rank."""
    R = rng.normal(size=(n, int(rng.integers(1, n + 3))))
    C = R @ R.T
    s = np.sqrt(C.diagonal())
    C = C / np.outer(s, s)
    np.fill_diagonal(C, 1.0)
    return (C + C.T) / 2


def correlations(rng):
    """Repair a correlation or covariance matrix so that a known matrix is feasible; check rows and bounds."""
    n = int(rng.integers(1, 7))
    floor = float(rng.choice([0.0, 0.0, 0.05, 0.3]))
    C = (1 - floor) * correlation(rng, n) + floor * np.eye(n)
    name = str(rng.choice(NEARNESS))
    if name in ("logdet", "von_neumann"):
        A = 0.9 * correlation(rng, n) + 0.1 * np.eye(n)
    else:
        A = symmetric(rng, n)
        np.fill_diagonal(A, 1.0)
    off = ~np.eye(n, dtype=bool)
    given, H = {"divergence": name, "min_eigenvalue": floor}, np.ones((n, n))
    fixed = np.zeros((n, n), dtype=bool)
    if rng.random() < 0.3:
        fixed = off & (np.abs(symmetric(rng, n)) < 0.3)
        A = np.where(fixed, C, A)
        if name in ("logdet", "von_neumann"):
            A = 0.9 * C + 0.1 * np.eye(n)
            fixed &= C == 0  # which this start keeps
        given["fixed"] = fixed if rng.random() < 0.5 else np.argwhere(np.triu(fixed))
    if rng.random() < 0.3:
        given["lower"] = np.where(off, C - 0.1, -1.0)
    if rng.random() < 0.3 and n > 1:  # a dict without pairs is refused
        given["upper"] = {(int(i), int(j)): float(C[i, j] + 0.1) for i, j in np.argwhere(np.triu(off))[:2]}
    if rng.random() < 0.2 and name == "frobenius":
        H = np.abs(symmetric(rng, n))
        given["weights"] = H
    elif rng.random() < 0.2 and name in ("frobenius", "largest_entry"):
        unknown = off & ~fixed & (np.abs(symmetric(rng, n)) < 0.3)
        alone = (unknown | ~off).all(axis=1)  # rows without data are left out
        unknown[alone] = unknown[:, alone] = False
        A[unknown], H, given["missing"] = np.nan, np.where(unknown, 0.0, H), "unknown"
    d = np.exp(rng.normal(size=n)) if rng.random() < 0.4 else np.ones(n)
    covariances = bool((d != 1).any()) and "min_eigenvalue" in given and floor == 0.0
    with unmodified(A, C):
        if covariances:
            unit = np.outer(d, d)
            del given["min_eigenvalue"]
            given |= {"lower": given["lower"] * unit} if "lower" in given else {}
            if "upper" in given:
                given["upper"] = {ij: bound * unit[ij] for ij, bound in given["upper"].items()}
            units = "covariance" if "max_condition" in given else ("covariance", "correlation")[n % 2]
            found = bo.nearest_covariance(A * unit, **given, units=units, **QUICK)
            unit = unit if units == "covariance" else np.ones((n, n))  # in which the distance is measured
        else:
            unit = np.ones((n, n))
            plain = (
                "upper" in given or not np.isfinite(A).all()
            )  # bounds by pairs of integers, or unknown entries
            found = bo.nearest_correlation(A if plain else dressed(rng, A), **given, **QUICK)
    says = f"{found.status} by {found.solver}, n {n}, {name}, {sorted(given)}"
    known = _distance(name, C * unit, A * unit, H)
    require(found.status not in ("infeasible", "unbounded"), f"{says}; a matrix is feasible")
    size = 1 + abs(known) + np.nansum((A * unit) ** 2) * (name == "frobenius")
    require(found.dual_value <= known + 1e-6 * size, f"{says}: bound {found.dual_value} above {known}")
    if found.status != "optimal":
        return found.status
    M = np.asarray(found.X) / (np.outer(d, d) if covariances else 1.0)
    at = _distance(name, M * unit, A * unit, H)
    require(np.abs(M.diagonal() - 1).max() <= 1e-4, f"{says}: diagonal {M.diagonal()}")
    require(np.linalg.eigvalsh(M)[0] >= floor - 1e-5, f"{says}: eigenvalue {np.linalg.eigvalsh(M)[0]}")
    require(np.abs(M - A)[fixed].max(initial=0.0) <= 1e-3, f"{says}: a fixed entry has moved")
    if "lower" in given:
        require((M - C >= -0.1 - 1e-3)[off].all(), f"{says}: an entry below its bound")
    for ij in given.get("upper", {}):
        require(M[ij] <= C[ij] + 0.1 + 1e-3, f"{says}: an entry above its bound")
    require(abs(at - found.value) <= 1e-4 * size, f"{says}: value {found.value}, which is {at}")
    require(found.value <= known + 1e-4 * size, f"{says}: value {found.value}, a known matrix has {known}")
    return found.status


def _distance(name, X, A, H):
    """Return the distance of X from A, infinite where a divergence is."""
    if name == "frobenius":
        return float(np.nansum(np.where(H > 0, (H * (X - A)) ** 2, 0.0)))
    if name == "largest_entry":
        return float(np.abs(np.where(H > 0, H * (X - A), 0.0)).max())
    if name == "spectral":
        return float(np.abs(np.linalg.eigvalsh(X - A)).max())
    values = np.linalg.eigvalsh(X)
    if name == "logdet":
        if values[0] <= 0:
            return np.inf
        return float(
            np.trace(np.linalg.solve(A, X)) - np.log(values).sum() + np.linalg.slogdet(A)[1] - len(X)
        )
    w, own = np.linalg.eigh(A)
    entropy = np.sum(np.where(values > 0, values * np.log(np.where(values > 0, values, 1.0)), 0.0))
    return float(entropy - np.trace(X @ (own * np.log(w)) @ own.T) - np.trace(X) + np.trace(A))


def repairs(rng):
    """Estimate pairwise correlations, shrink a matrix, or find factors; check their definitions."""
    n, kind = int(rng.integers(2, 7)), rng.integers(3)
    if kind == 0:
        X = rng.normal(size=(int(rng.integers(1, 30)), n)) * 10.0 ** rng.choice([0, 0, -100, 100], size=n)
        X[rng.random(X.shape) < 0.2] = np.nan
        with unmodified(X):
            A = bo.pairwise_correlation(X).A
        both = ~np.isnan(X[:, :, None] + X[:, None, :])
        for i, j in np.ndindex(n, n):
            t = both[:, i, j]
            require(np.isnan(A[i, j]) == (t.sum() < 2), f"A[{i}, {j}] is {A[i, j]} of {t.sum()} samples")
            if i != j and t.sum() >= 2:
                x, y = X[t, i] / np.nanmax(np.abs(X[:, i])), X[t, j] / np.nanmax(np.abs(X[:, j]))
                expected = np.corrcoef(x, y)[0, 1]
                require(abs(A[i, j] - expected) <= 1e-6, f"A[{i}, {j}] is {A[i, j]}; expected {expected}")
        return "estimated"
    A = np.clip(symmetric(rng, n), -1, 1)
    np.fill_diagonal(A, 1.0)
    if kind == 1:
        floor = float(rng.choice([0.0, 0.1]))
        target = 0.8 * correlation(rng, n) + 0.2 * np.eye(n) if rng.random() < 0.5 else np.eye(n)
        with unmodified(A, target):
            found = bo.shrink_correlation(dressed(rng, A), target, min_eigenvalue=floor)
        alpha, X = found.value, np.asarray(found.X)
        require(np.abs(X - (A + alpha * (target - A))).max() <= 1e-12, f"X is not on the line at {alpha}")
        require(np.linalg.eigvalsh(X)[0] >= floor - 1e-12, f"{alpha}: eigenvalue {np.linalg.eigvalsh(X)[0]}")
        less = found.dual_value - 1e-9
        require(
            less < 0 or np.linalg.eigvalsh(A + less * (target - A))[0] < floor,
            f"{less} is enough, not {alpha}",
        )
        return found.status
    k, least = int(rng.integers(1, n)), float(rng.choice([0.0, 0.2]))
    w = rng.random(n) + 0.1 if rng.random() < 0.5 else np.ones(n)
    with unmodified(A, w):
        found = bo.factor_correlation(dressed(rng, A), k, least, w, **QUICK)
    X, L, v = (np.asarray(value) for value in (found.X, found.loadings, found.specific_variances))
    says = f"{found.status}, n {n}, {k} factors"
    require(np.abs(L @ L.T + np.diag(v) - X).max() <= 1e-12, f"{says}: X is not of its factors")
    require(np.abs(X.diagonal() - 1).max() <= 1e-12 and v.min() >= least - 1e-12, f"{says}: variances {v}")
    at = np.sum(np.outer(w, w) * (X - A) ** 2)
    require(abs(at - found.value) <= 1e-9 * (1 + at), f"{says}: value {found.value}, which is {at}")
    own = rng.normal(size=(n, k))
    own *= np.sqrt((1 - least) * rng.random(n) / np.sum(own**2, axis=1))[:, None]
    known = own @ own.T
    np.fill_diagonal(known, 1.0)
    far = np.sum(np.outer(w, w) * (known - A) ** 2)
    require(
        found.dual_value <= min(far, at) + 1e-9 * (1 + at), f"{says}: bound {found.dual_value} above {far}"
    )
    return found.status


def structured(rng):
    """Repair with groups, a bounded condition number or as a stack; check the structure of the answer."""
    n, kind = int(rng.integers(1, 7)), rng.integers(3)
    name = str(rng.choice(NEARNESS[:3]))
    A = symmetric(rng, n) if name == "frobenius" else 0.9 * correlation(rng, n) + 0.1 * np.eye(n)
    np.fill_diagonal(A, 1.0)
    if kind == 0:
        groups = rng.integers(1, 4, size=n)
        with unmodified(A, groups):
            found = bo.nearest_correlation(A, name, groups=groups, **QUICK)
        X, known = np.asarray(found.X), np.eye(n)
        for a, b in np.ndindex(4, 4):
            block = X[np.ix_(groups == a, groups == b)][
                ~np.eye(n, dtype=bool)[np.ix_(groups == a, groups == b)]
            ]
            require(
                np.ptp(block) <= 1e-9 if block.size else True, f"{found.status}: groups {a}, {b} have {block}"
            )
    elif kind == 1:
        most = float(rng.choice([1.0, 1.5, 10.0, 1e3]))
        with unmodified(A):
            found = bo.nearest_correlation(dressed(rng, A), name, max_condition=most, **QUICK)
        X, known = np.asarray(found.X), np.eye(n)
        w = np.linalg.eigvalsh(X)
        require(
            found.status != "optimal" or w[-1] <= most * w[0] * (1 + 1e-4), f"{found.status}: condition {w}"
        )
    else:
        stack = np.array([A, np.eye(n), A[::-1, ::-1]])
        warm = {"warm_start": "chain"} if rng.random() < 0.3 else {}
        with unmodified(stack):
            found = bo.nearest_correlation(stack, name, **warm, **QUICK)
        one = bo.nearest_correlation(A, name, **QUICK)
        for k, turn in ((0, slice(None)), (2, slice(None, None, -1))):
            apart = np.abs(np.asarray(found[k].X)[turn, turn] - np.asarray(one.X)).max()
            require(apart <= 1e-2, f"matrix {k} of a stack is {apart:.1e} from its own answer")
        return "a stack"
    require(found.status not in ("infeasible", "unbounded"), f"{found.status}: the identity is feasible")
    at = _distance(name, known, A, np.ones((n, n)))
    require(found.dual_value <= at + 1e-6 * (1 + at), f"{found.status}: bound {found.dual_value} above {at}")
    require(found.status != "optimal" or found.value <= at + 1e-4 * (1 + at), f"{found.value} above {at}")
    return found.status
