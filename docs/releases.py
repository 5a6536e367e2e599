"""The sites of all releases and of the files here, side by side: ``make docs-releases``.

    python docs/releases.py [--out FOLDER]

A release is a tag ``v...`` of git, and its site is built from the files of the tag with the packages that are
installed. A bar on each of its pages leads to the site of the files here, ``latest``, whose sidebar lists the
releases.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LATEST = "address-of-the-latest-site"
BAR = f'This page is of an older release. <a href="{LATEST}">Read the latest one.</a>'


def tags(root):
    """Return the tags of releases that have a site, the newest first."""
    names = _git(root, "tag", "--list", "v*", "--sort=-version:refname").split()
    return [name for name in names if "docs/conf.py" in _git(root, "ls-tree", "--name-only", name, "docs/")]


def release(root, tag, out):
    """Build the site of a release."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "files"
        _git(root, "worktree", "add", "--detach", str(files), tag)
        try:
            _build(files, out / tag, "-D", f"html_theme_options.announcement={BAR}")
        finally:
            _git(root, "worktree", "remove", "--force", str(files))
    for page in (out / tag).rglob("*.html"):
        address = os.path.relpath(out / "latest" / "index.html", page.parent)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(LATEST, Path(address).as_posix()), encoding="utf-8")


def latest(root, names, out):
    """Build the site of the files here, with a list of releases."""
    _build(root, out / "latest", BREGOPT_DOCS_RELEASES=" ".join(names))


def _build(root, out, *options, **environment):
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", *options, str(root / "docs"), str(out)]
    subprocess.run(command, env={**os.environ, **environment, "PYTHONPATH": str(root)}, check=True)


def _git(root, *arguments):
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def main(arguments=None):
    """Build all sites."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_build" / "releases")
    options = parser.parse_args(arguments)
    names = tags(options.root)
    for name in names:
        release(options.root, name, options.out)
    latest(options.root, names, options.out)


if __name__ == "__main__":
    main()
