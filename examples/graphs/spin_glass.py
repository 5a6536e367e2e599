"""Ground state of a spin glass
============================

Spins on a periodic grid have random couplings. Their ground state is a largest
cut, and it is proven. The energy of a domain wall is the difference of two
ground states: with periodic and with antiperiodic boundaries.
"""

import matplotlib.pyplot as plt
import numpy as np

import bregopt as bo

# %%
# Normally distributed couplings on a torus of 14 x 14 spins (seed 5).
side = 14
at = np.arange(side**2).reshape(side, side)
i = np.concatenate([at.ravel(), at.ravel()])
j = np.concatenate(
    [np.roll(at, -1, axis=1).ravel(), np.roll(at, -1, axis=0).ravel()]
)
J = np.random.default_rng(5).normal(size=len(i))


# %%
# The energy of spins is minus the sum of J s s'. It is minus the sum of all J,
# less twice the cut of the weights -J.
def ground_state(J):
    """Return the spins of least energy, the energy, and the cut."""
    found = bo.max_cut(np.column_stack([i, j]), weights=-J, exact=True)
    s = found.partition
    return s, -(J * s[i] * s[j]).sum(), found


s, energy, found = ground_state(J)
print(f"energy per spin {energy / side**2:.6f}")
print(found)
found.explain()

# %%
# Antiperiodic boundaries turn the couplings between the last column and the
# first. The difference of the energies is that of a domain wall.
last = (i % side == side - 1) & (j % side == 0)
t, other, _ = ground_state(np.where(last, -J, J))
print(f"domain wall: {abs(other - energy):.6f}")

# %%
# Where the two ground states differ, the wall is drawn; colors show whether a
# spin agrees.
agrees = (s * t).reshape(side, side)
fig, ax = plt.subplots(figsize=(5, 5))
ax.imshow(agrees, cmap="coolwarm", vmin=-2, vmax=2)
for row in range(side):
    for column in range(side - 1):
        if agrees[row, column] != agrees[row, column + 1]:
            ax.plot(
                [column + 0.5] * 2, [row - 0.5, row + 0.5], color="black", lw=2
            )
        if agrees[column, row] != agrees[column + 1, row]:
            ax.plot(
                [row - 0.5, row + 0.5], [column + 0.5] * 2, color="black", lw=2
            )
ax.set(xticks=[], yticks=[], title="domain wall between the ground states")

# %%
# The proof of the first one is a small file, which ``bregopt verify`` checks.
found.certificate.check()
print(found.certificate.proven)
