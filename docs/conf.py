"""Sphinx configuration: MyST pages, numpydoc docstrings, nothing fetched."""

import bregopt

project = "bregopt"
author = "The bregopt developers"
copyright = "2026, the bregopt developers"
release = version = bregopt.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "bregopt"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types as a reader would
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
