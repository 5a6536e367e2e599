"""The documentation is true: every Python block of every page runs, and so does every example."""

import re
import runpy
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONAL = ("sklearn", "networkx", "pandas", "matplotlib")


def blocks(page):
    return BLOCK.findall(page.read_text())


def need(source):
    for package in OPTIONAL:
        if re.search(rf"^\s*(import|from) {package}", source, re.MULTILINE):
            pytest.importorskip(package)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_page_runs(page):
    source = blocks(page)
    need("\n".join(source))
    namespace = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in source:
            exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(example, capsys):
    source = example.read_text()
    need(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_commands_of_the_pages_exist(capsys):
    from bregopt.cli import main

    for page in PAGES:
        for block in SHELL.findall(page.read_text()):
            for line in block.splitlines():
                command = re.match(r"\$ bregopt (\w+)", line)
                if command:
                    with pytest.raises(SystemExit) as end:
                        main([command.group(1), "--help"])
                    assert end.value.code == 0, line


def test_every_public_name_is_in_the_reference():
    import bregopt

    reference = (ROOT / "docs" / "reference.md").read_text()
    missing = [name for name in bregopt.__all__ if not re.search(rf"\b{name}\b", reference)]
    assert not missing


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
