"""Measure entanglement
====================

The distance of a noisy state from the nearest state with a positive partial
transpose measures its entanglement. The multiplier is a witness: an observable
whose expectation is nonnegative in every separable state.
"""

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# A maximally entangled state of two systems of dimension four, mixed with
# noise.
d = 4
n = d * d
rng = np.random.default_rng(0)
phi = np.eye(d).ravel() / np.sqrt(d)
G = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
noise = G @ G.conj().T / np.linalg.norm(G) ** 2
state = 0.6 * np.outer(phi, phi) + 0.4 * noise

# %%
# The nearest state in the von Neumann divergence. The partial transpose is one
# more matrix that has to be positive semidefinite.
X = bo.PSD(n, hermitian=True, name="X")
ppt = bo.partial_transpose(X, (d, d), 1) >> 0
problem = bo.Problem(
    bo.Minimize(bo.von_neumann_div(X, state)), [bo.trace(X) == 1, ppt]
)
sol = problem.solve(tol=1e-8)
print(sol)


# %%
# The multiplier of the matrix inequality is the witness.
def transposed(A):
    """Return the partial transpose."""
    return A.reshape(d, d, d, d).swapaxes(1, 3).reshape(n, n)


witness = transposed(ppt.dual_value)
before, after = (np.trace(witness @ A).real for A in (state, sol.X))
print(
    f"expectation of the witness: {before:.4f} before, {abs(after):.4f} after"
)

# %%
# Eigenvalues of the partial transpose: those below zero show entanglement.
_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, A, marker in (("given", state, "o"), ("nearest", sol.X, "x")):
    spectrum = np.linalg.eigvalsh(transposed(A))
    ax.plot(np.arange(1, n + 1), spectrum, marker, label=name)
ax.axhline(0, color="0.7", lw=1)
ax.set_xlabel("number")
ax.set_ylabel("eigenvalue of the partial transpose")
ax.legend(frameon=False)
