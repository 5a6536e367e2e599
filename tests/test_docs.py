"""The documentation is true: its blocks run and print what the pages show, and its examples run.

The blocks of a page run in order, in one namespace and one empty folder. A ``text`` block right after a
Python block is what that one prints, and lines after ``$ bregopt ...`` are what the command prints; both are
compared with numbers left out, and up to a line of three dots. A TOML block that begins with ``# name.toml``
is that file.
"""

import re
import runpy
import shlex
import warnings
from pathlib import Path

import pytest

import bregopt as bo
from bregopt import cli
from bregopt.interop.evaluate import FUNCTIONS
from bregopt.interop.spec import KEYS
from bregopt.solvers import registry
from bregopt.solvers.base import Settings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^```(python|text|console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
OPTIONAL = ("sklearn", "networkx", "pandas", "matplotlib")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))  # a page may add routes


def text_of(name):
    return (ROOT / "docs" / name).read_text()


def blocks(page):
    """Return of each block its language, its text, and whether it follows the one before without a word."""
    source, found, end = page.read_text(), [], 0
    for fence in FENCE.finditer(source):
        found.append((fence.group(1), fence.group(2), not source[end : fence.start()].strip()))
        end = fence.end()
    return found


def need(source):
    for package in OPTIONAL:
        if re.search(rf"^\s*(import|from) {package}", source, re.MULTILINE):
            pytest.importorskip(package)


def shape(text):
    """Return printed lines without their numbers."""
    lines = NUMBER.sub("#", text.strip()).splitlines()
    return [" ".join(re.sub(r"-{3,}", "---", line).split()) for line in lines]


def assert_shown(shown, printed):
    head, dots, _ = shown.partition("...\n")
    expected, found = shape(head), shape(printed)
    assert (found[: len(expected)] if dots else found) == expected


def run_console(text, capsys):
    """Run the commands of a block; one whose file the page did not make is only parsed."""
    for command, shown in re.findall(r"^\$ bregopt (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        options = cli._parser().parse_args(shlex.split(command))
        if not getattr(options, "file", Path("no file")).exists():
            continue
        capsys.readouterr()
        assert cli.main(shlex.split(command)) == 0, capsys.readouterr().err
        if shown:
            assert_shown(shown, capsys.readouterr().out)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_page_runs(page, capsys):
    found = blocks(page)
    need("\n".join(text for language, text, _ in found if language == "python"))
    namespace = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for language, text, follows in found:
            if language == "python":
                capsys.readouterr()
                exec(compile(text, page.name, "exec"), namespace)
            elif language == "text":
                printed = capsys.readouterr().out
                if follows and printed:
                    assert_shown(text, printed)
            elif language == "console":
                run_console(text, capsys)
            elif name := re.match(r"# (\S+\.toml)\n", text):
                Path(name.group(1)).write_text(text)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(example, capsys):
    source = example.read_text()
    need(source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_figures_are_small_and_drawn_by_their_script(tmp_path):
    pytest.importorskip("matplotlib")
    draw = runpy.run_path(str(ROOT / "docs" / "figures.py"))["main"]
    draw(tmp_path)
    committed = sorted((ROOT / "docs" / "figures").glob("*.png"))
    assert [p.name for p in committed] == sorted(p.name for p in tmp_path.glob("*.png"))
    assert all(p.stat().st_size < 80_000 for p in [*committed, *tmp_path.glob("*.png")])


def test_every_public_name_is_in_the_reference():
    listed = re.findall(
        r"^\.\. auto(?:class|function|exception):: (\w+)$", text_of("reference.md"), re.MULTILINE
    )
    assert sorted(listed) == sorted(bo.__all__)


def test_every_route_has_a_page_that_names_its_options():
    pages = {p.stem: p.read_text() for p in (ROOT / "docs" / "routes").glob("*.md") if p.stem != "index"}
    assert set(pages) == set(bo.solvers())
    shared = set(Settings.__dataclass_fields__)
    for name, cls in registry._all().items():
        for option in set(cls.Settings.__dataclass_fields__) - shared:
            assert f"`{option}`" in pages[name], f"{name}: {option}"


def test_every_shared_option_and_function_is_on_the_page_of_the_language():
    page = text_of("modeling.md")
    assert not [name for name in Settings.__dataclass_fields__ if f"`{name}`" not in page]
    assert not [name for name in FUNCTIONS if f"bo.{name}" not in page]


def test_every_key_and_command_line_option_is_on_its_page(capsys):
    page = text_of("command-line.md")
    assert not [key for keys in KEYS.values() for key in keys if key not in page]
    for command in ("solve", "check", "explain", "demo"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
        assert not [option for option in options if f"`{option}`" not in page], command


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
