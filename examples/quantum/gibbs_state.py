"""Find the state of largest entropy
=================================

A few expectations of a chain of spins are measured. Of all states that have
them, the state of largest entropy assumes nothing else (Jaynes 1957).
"""

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# Five spins in a ring: the strength of each bond is an observable.
n, order = 5, 2**5
Z, S = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])


def at(places, A):
    """Return the product of `A` at the places and the identity elsewhere."""
    product = np.eye(1)
    for k in range(n):
        product = np.kron(product, A if k in places else np.eye(2))
    return product


bonds = [at({k, (k + 1) % n}, Z) for k in range(n)]
field = sum(at({k}, S) for k in range(n))

# %%
# The expectations: two bonds are stronger than the others, and there is a
# field.
wanted = [0.6, 0.6, 0.2, 0.2, 0.2]
X = bo.PSD(order, name="X")
rows = [bo.inner(B, X) == b for B, b in zip(bonds, wanted, strict=True)]
rows += [bo.trace(X) == 1, bo.inner(field, X) == 1.5]
problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(order))), rows)
sol = problem.solve(tol=1e-9)
print(sol)

# %%
# The logarithm of the answer is a combination of the observables: it is a Gibbs
# state, and the multipliers are the couplings.
values, vectors = np.linalg.eigh(sol.X)
H = vectors @ np.diag(np.log(values)) @ vectors.T
seen = np.stack([*bonds, field, np.eye(order)]).reshape(n + 2, -1).T
_, residual, *_ = np.linalg.lstsq(seen, H.ravel(), rcond=None)
print(f"the logarithm outside their span: {np.sqrt(residual[0]):.0e}")

# %%
# Its eigenvalues, and those of the maximally mixed state.
_, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.bar(np.arange(1, order + 1), values[::-1])
ax.axhline(1 / order, color="0.5", lw=1)
ax.set_xlabel("number")
ax.set_ylabel("probability")
