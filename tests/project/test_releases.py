"""The sites of releases: ``docs/releases.py`` of a small project with two tags."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CONF = """
import os
project = "small"
extensions = []
templates_path = ["_templates"]
html_theme = "furo"
html_context = {"releases": os.environ.get("BREGOPT_DOCS_RELEASES", "").split()}
html_sidebars = {"**": ["sidebar/brand.html", "sidebar/releases.html"]}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("furo") is None, reason="needs the extra docs"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def releases():
    """Return the module docs/releases.py."""
    spec = importlib.util.spec_from_file_location("releases", DOCS / "releases.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(root, *arguments):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Return the folder of the sites of a project with pages of three states."""
    root = tmp_path_factory.mktemp("project")
    (root / "docs" / "deep").mkdir(parents=True)
    shutil.copytree(DOCS / "_templates", root / "docs" / "_templates")
    (root / "docs" / "conf.py").write_text(CONF, encoding="utf-8")
    (root / "docs" / "deep" / "page.rst").write_text("Page\n====\n", encoding="utf-8")
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "before the site")
    git(root, "tag", "v0.0.1")
    for name in ("v0.9.0", "v0.10.0", None):
        text = f"Small\n=====\n\nState {name}.\n\n.. toctree::\n\n   deep/page\n"
        (root / "docs" / "index.rst").write_text(text, encoding="utf-8")
        git(root, "add", "docs")
        git(root, "commit", "-q", "-m", f"state {name}")
        if name:
            git(root, "tag", name)
    out = root / "out"
    releases().main(["--root", str(root), "--out", str(out)])
    return out


class TestReleases:
    def test_each_is_of_its_own_files(self, sites):
        assert {each.name for each in sites.iterdir()} == {"v0.9.0", "v0.10.0", "latest"}
        for folder, state in (("v0.9.0", "v0.9.0"), ("v0.10.0", "v0.10.0"), ("latest", "None")):
            assert f"State {state}." in (sites / folder / "index.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize("page", ["index.html", "deep/page.html"])
    def test_the_latest_lists_them_from_the_newest(self, sites, page):
        text = (sites / "latest" / page).read_text(encoding="utf-8")
        up = "../" * (page.count("/") + 1)
        first, second = (text.index(f'href="{up}{name}/index.html"') for name in ("v0.10.0", "v0.9.0"))
        assert first < second
        assert "older release" not in text

    @pytest.mark.parametrize("page", ["index.html", "deep/page.html"])
    def test_an_older_one_leads_to_the_latest(self, sites, page):
        text = (sites / "v0.9.0" / page).read_text(encoding="utf-8")
        up = "../" * (page.count("/") + 1)
        assert f'<a href="{up}latest/index.html">Read the latest one.</a>' in text
        assert os.path.exists(sites / "v0.9.0" / Path(page).parent / up / "latest" / "index.html")
