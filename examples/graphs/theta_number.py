"""Bound the largest independent set
=================================

How many members of a club have no tie among them? The theta number of Lovász
(1979) bounds the size of such a set, and is often exact.
"""

import matplotlib.pyplot as plt
import networkx

import bregopt as bo

# %%
# The bound comes from a semidefinite program whose rows are the ties.
graph = networkx.karate_club_graph()
sol = bo.lovasz_theta(graph)
print(sol)

# %%
# A simple search finds a set of that size, so both are optimal.
strangers = max(
    (networkx.maximal_independent_set(graph, seed=seed) for seed in range(50)),
    key=len,
)
print(f"{len(strangers)} strangers, and no more than {sol.value:.4f}")

# %%
_, ax = plt.subplots(figsize=(6, 4), layout="constrained")
color = ["tab:orange" if v in strangers else "0.8" for v in graph]
place = networkx.kamada_kawai_layout(graph)
networkx.draw(graph, place, ax, node_color=color, node_size=80, width=0.5)
