"""Labels in mathematical notation: for terminals, LaTeX and HTML.

The label of an expression or constraint is text in the language itself, such as ``trace(X) <= 1``.
:func:`written` reads such a text and writes it in a :class:`Style`. :data:`ATOMS` says how an atom is
written; other functions are written as they are. A label that cannot be read, such as one with an unusual
name, is shown as it is.
"""

from bregopt.modeling.notation.atoms import ATOMS
from bregopt.modeling.notation.reader import written
from bregopt.modeling.notation.styles import HTML, LATEX, UNICODE, Style

__all__ = ["ATOMS", "HTML", "LATEX", "UNICODE", "Style", "written"]
