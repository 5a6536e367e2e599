"""Split a karate club
===================

Split Zachary's karate club in two halves with few ties between them, and prove
a bound on their number.
"""

import math

import networkx

import bregopt as bo

graph = networkx.karate_club_graph()
found = bo.min_balanced_cut(graph)
print(found)
print(
    f"{found.cut:g} ties between the sides; no halves have fewer than {math.ceil(found.bound)}"
)
known = {v for v in graph if graph.nodes[v]["club"] == "Mr. Hi"}
sides = [set(side) for side in found.sides]
print(
    f"the split that happened differs in {min(len(side ^ known) for side in sides)} members"
)
