"""Compress a stream of digits
===========================

Handwritten digits arrive one by one, first zeros, then ones. A learner
compresses each digit to a subspace of four dimensions before it learns from it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bregopt.online import OnlinePCA

digits = load_digits()
stream = np.concatenate([digits.data[digits.target == k] for k in (0, 1)])
stream /= np.linalg.norm(stream, axis=1).max()

# %%
# One learner competes with one fixed subspace. The other, with ``share``,
# adapts to streams that change.
learners = {
    "one subspace": OnlinePCA(n_components=4, horizon=len(stream)),
    "with share": OnlinePCA(n_components=4, horizon=len(stream), share=0.01),
}
losses = {}
for name, learner in learners.items():
    total = [0.0]
    for x in stream:
        learner.partial_fit(x[None])
        total.append(learner.loss_)
    losses[name] = np.diff(total)
    print(f"{name}: mean loss {losses[name].mean():.3f}")

# %%
# The best single subspace is known only when all digits have been seen.
V = np.linalg.svd(stream, full_matrices=False)[2][:4]
best = ((stream - stream @ V.T @ V) ** 2).sum(axis=1)
print(f"best subspace, known afterwards: {best.mean():.3f}")

# %%
# Mean losses of twenty digits. The ones begin at the line.
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
width = np.ones(20) / 20
for name, loss in {**losses, "best subspace afterwards": best}.items():
    ax.plot(np.convolve(loss, width, "valid"), label=name)
ax.axvline((digits.target == 0).sum(), color="0.7", lw=1)
ax.set_xlabel("digits seen")
ax.set_ylabel("squared distance lost")
ax.set_ylim(0)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
