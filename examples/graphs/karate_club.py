"""Split a karate club
===================

Zachary's karate club split after a conflict. This example splits it into two
halves, cuts as few ties as possible, and proves it. The result is close to the
split that happened.
"""

import networkx

import bregopt as bo

# %%
# The cut is found first; then a semidefinite relaxation proves a lower bound.
# Numbers of ties are whole, so a bound above 9 proves that 10 is the least.
graph = networkx.karate_club_graph()
for edge in graph.edges:
    graph.edges[edge]["weight"] = 1
found = bo.min_balanced_cut(graph)
print(found)

# %%
# All members but two are on the side that they joined.
joined = {v for v in graph if graph.nodes[v]["club"] == "Mr. Hi"}
differs = min((set(side) ^ joined for side in found.sides), key=len)
print("members who went the other way:", sorted(differs))

# %%
# Ties between the halves are drawn darker.
found.plot()
