"""Find groups in a novel
======================

The characters of Les Misérables meet in scenes. This example divides the graph
of meetings into seven groups of equal size, with few meetings between groups. A
bound says how many there must be.
"""

import networkx

import bregopt as bo

# %%
# Each edge has the number of scenes in which two characters meet.
graph = networkx.les_miserables_graph()
found = bo.partition(graph, 7, seed=0)
print(found)

# %%
# The groups, each with the characters who meet most.
meetings = dict(graph.degree(weight="weight"))
for part in found.parts:
    known = sorted(part, key=meetings.get, reverse=True)[:4]
    print(f"{len(part):2} characters:", ", ".join(known))

# %%
# Edges between groups are drawn darker.
found.plot()
