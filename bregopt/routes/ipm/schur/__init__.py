"""The Schur matrix of Newton's system: ``H_kl = <A_k, sym(P A_l Q)>`` for all pairs of rows of a block.

No ``A_k`` is multiplied out if its structure allows a cheaper formula (Fujisawa, Kojima and Nakata 1997; for
rank-one terms the Hadamard product of the max-cut literature):

- rank-one terms ``w u u'``: a Hadamard product of two congruences, ``(U P U') o (U Q U')``
  (:mod:`~bregopt.routes.ipm.schur.gram`);
- rows with few entries: products of entries of ``P`` and ``Q``, formed once for each pair of distinct places
  of ``X`` (their F3, :mod:`~bregopt.routes.ipm.schur.products`);
- rows with many entries: ``P A_l Q``, to which the rows are applied (their F1,
  :mod:`~bregopt.routes.ipm.schur.products`).
"""

from bregopt.routes.ipm.schur.gram import Gram

__all__ = ["Gram"]
