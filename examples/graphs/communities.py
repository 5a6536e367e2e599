"""Prove the communities of a network
==================================

Communities have more edges inside than a random graph with the same degrees
would have there. The difference is the modularity. This example finds the
communities of the karate club, and proves that no partition has a larger
modularity.
"""

import networkx

import bregopt as bo

# %%
# The bound holds for all partitions, in any number of parts.
club = networkx.karate_club_graph()
found = bo.communities(club)
print(found)

# %%
# A greedy method finds fewer and larger communities.
greedy = networkx.community.greedy_modularity_communities(club, weight=None)
print(
    "greedy:",
    round(networkx.community.modularity(club, greedy, weight=None), 4),
)

# %%
# A larger resolution makes smaller communities.
for resolution in (0.5, 1.0, 2.0):
    parts = bo.communities(club, resolution, bound=False).communities
    print(f"resolution {resolution}: {[len(part) for part in parts]}")

# %%
# Edges between communities are black.
found.plot()
