"""Prove the global minimum of a polynomial
========================================

The six-hump camel function has six local minima. A sum of squares proves that
no point has a smaller value than the best of them: in rational numbers, so
that SymPy can check it.
"""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import sympy
from scipy.optimize import minimize
from scipy.spatial import Delaunay

import bregopt as bo

# %%
# The polynomial (Dixon and Szegö 1978) times 30 has integer coefficients, which
# doubles hold exactly.
x, y = sympy.symbols("x y")
camel = sympy.Poly(
    120 * x**2 - 63 * x**4 + 10 * x**6 + 30 * x * y - 120 * y**2 + 120 * y**4
)


# %%
# If ``p - t = z'Q z`` for monomials ``z`` and a psd matrix ``Q``, then ``p`` is
# at least ``t`` everywhere. Only monomials in half of the Newton polytope can
# occur; with others ``Q`` would have no interior. Each coefficient is one row.
def half_newton_polytope(p):
    """Return the exponents whose doubles are in the hull of those of p."""
    points = np.array([*p.monoms(), (0,) * len(p.gens)])
    hull = Delaunay(points)
    candidates = product(*(range(m // 2 + 1) for m in points.max(axis=0)))
    return [m for m in candidates if hull.find_simplex(2 * np.array(m)) >= 0]


def largest_bound(p, z):
    """Return the problem of the largest t for which p - t is such a sum."""
    Q, t = bo.PSD(len(z), name="Q"), bo.Variable(name="t")
    entries = {}
    for i, j in product(range(len(z)), repeat=2):
        power = tuple(np.add(z[i], z[j]))
        entries.setdefault(power, np.zeros((len(z), len(z))))[i, j] = 1
    for power in p.monoms():  # that no product has: a row without entries
        entries.setdefault(power, np.zeros((len(z), len(z))))
    rows = [
        bo.inner(A, Q) + (0 if any(power) else t)
        == float(p.coeff_monomial(power))
        for power, A in entries.items()
    ]
    return bo.Problem(bo.Maximize(t), rows)


z = half_newton_polytope(camel)
sol = largest_bound(camel, z).solve(tol=1e-9)
print(sol)

# %%
# Doubles solve the rows up to round-off, which proves nothing. The rational
# answer solves them exactly. Its exact factors ``Q = L diag(d) L'`` are the
# squares, and SymPy finds no difference (Peyrl and Parrilo 2008).
exact = sol.rational()
(L, d), t = exact.factors[0], sympy.Rational(exact.u["t"])
roots = L.T @ np.array([x**a * y**b for a, b in z])
squares = sum(sympy.Rational(d[k]) * roots[k] ** 2 for k in range(len(d)))
difference = sympy.expand(camel.as_expr() - t - squares)
print(f"{len(d)} squares, difference {difference}")
print(f"no value is below {float(t / 30):.10f}")


# %%
# A local search from the right side finds a point with this value.
def value(point):
    """Return the camel at a point."""
    return camel_of(*point) / 30


camel_of = sympy.lambdify((x, y), camel.as_expr())
best = minimize(value, [0.1, -0.7], tol=1e-12)
print(f"value {best.fun:.10f} at {best.x.round(4)}")

# %%
# A polynomial that is nowhere negative need not be a sum of squares. Motzkin's
# is none, whatever constant is added, and the row that says why is named.
motzkin = sympy.Poly(x**4 * y**2 + x**2 * y**4 - 3 * x**2 * y**2 + 1)
try:
    largest_bound(motzkin, half_newton_polytope(motzkin)).solve()
except bo.InfeasibleRowError as error:
    print(error)

# %%
grid = np.meshgrid(np.linspace(-2, 2, 200), np.linspace(-1.1, 1.1, 200))
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.contour(*grid, value(grid), levels=np.linspace(-1, 4, 21), linewidths=0.8)
ax.plot(*np.stack([best.x, -best.x]).T, "x", color="tab:red", ms=10)
ax.set_title("both crosses are global minima")
