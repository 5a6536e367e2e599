"""Measure entanglement
====================

Measure how entangled a noisy state is: its distance from the states with a
positive partial transpose.

States that separate into products have a positive partial transpose (PPT). The
nearest such state in the von Neumann divergence comes with a multiplier that is
an entanglement witness: an observable with a nonnegative expectation in every
separable state, and a negative one in the given state.
"""

import numpy as np

import bregopt as bo

d, rng = 4, np.random.default_rng(0)
n = d * d
phi = np.eye(d).ravel() / np.sqrt(d)
G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
noise = G @ G.conj().T / np.linalg.norm(G) ** 2
state = 0.6 * np.outer(phi, phi) + 0.4 * noise

X = bo.PSD(n, hermitian=True, name="X")
ppt = bo.partial_transpose(X, (d, d), 1) >> 0
sol = bo.Problem(
    bo.Minimize(bo.von_neumann_div(X, state)), [bo.trace(X) == 1, ppt]
).solve(tol=1e-8)
print(sol)


def turned(A):
    """Return the partial transpose."""
    return A.reshape(d, d, d, d).swapaxes(1, 3).reshape(n, n)


witness = turned(ppt.dual_value)
print(
    f"smallest eigenvalue of the partial transpose: {np.linalg.eigvalsh(turned(state))[0]:.4f} before"
)
before, after = (np.trace(witness @ A).real for A in (state, sol.X))
print(
    f"expectation of the witness: {before:.4f} before, {abs(after):.4f} after"
)
