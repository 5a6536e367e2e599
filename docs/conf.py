"""Sphinx configuration: MyST pages, numpydoc docstrings, a gallery that is run, nothing fetched."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
from sphinx import addnodes

import bregopt

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
import figures  # noqa: E402
import pages  # noqa: E402

mpl.use("agg")
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

project = "bregopt"
author = "The bregopt developers"
copyright = "2026, the bregopt developers"
release = version = bregopt.__version__


def address():
    """Return the address of the repository that a browser opens: that of the clone, if it has one."""
    found = os.environ.get("BREGOPT_DOCS_REPOSITORY")
    if found is None:
        command = ["git", "-C", str(DOCS), "remote", "get-url", "origin"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    found = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", found).removesuffix(".git")
    return found if found.startswith("https://") else ""


repository = address()

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.zip"]

html_theme = "furo"
html_title = f"bregopt {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/logo.svg"  # drawn by the build
html_search_scorer = str(DOCS / "_static" / "scorer.js")
copybutton_prompt_text = "$ "
html_context = {
    "releases": os.environ.get("BREGOPT_DOCS_RELEASES", "").split(),  # by docs/releases.py
    "repository": repository,
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/releases.html",
        "sidebar/scroll-end.html",
    ]
}

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types as a reader would
autosummary_generate = True
autosummary_context = {"uses": pages.uses(), "experimental": pages.experimental()}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

GROUPS = ["correlation", "learning", "graphs", "semidefinite", "quantum", "scale", "trust"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "subsection_order": [f"../examples/{group}" for group in GROUPS],
    "within_subsection_order": "ExampleTitleSortKey",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"/(papers|specs)/",
    "nested_sections": False,
    "doc_module": ("bregopt",),
    "backreferences_dir": "gallery/backreferences",
    "download_all_examples": False,
    "capture_repr": (),
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 60,
    "remove_config_comments": True,
}


def setup(app):
    """Draw the logo, and connect what changes pages."""
    figures.draw_logo(DOCS / "_static" / "logo.svg")
    app.connect("source-read", with_address)
    app.connect("autodoc-skip-member", generated)
    app.connect("doctree-read", without_links_of_words)


def with_address(app, name, source):
    """Put the address of the repository into commands that clone it."""
    if repository:
        source[0] = source[0].replace("git clone REPOSITORY", f"git clone {repository}")


def generated(app, what, name, member, skip, options):
    """Skip the setters of metadata requests, which scikit-learn adds to every estimator."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def without_links_of_words(app, doctree):
    """Replace references of types to a word in lower case by the word."""
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference.get("refdomain") == "py" and reference.get("reftype") == "class":
            target = reference["reftarget"]
            if target.islower() and "." not in target:
                reference.replace_self(reference.children)
