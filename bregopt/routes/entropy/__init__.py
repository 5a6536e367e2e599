"""The route `entropy`: convex terms such as entropies, relative entropies and exponentials."""

from bregopt.routes.entropy.route import Entropy

__all__ = ["Entropy"]
