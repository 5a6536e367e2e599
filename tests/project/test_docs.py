"""The documentation is correct: its blocks run and print the output on the pages.

docs/pages.py runs the pages, defines how numbers are compared, and rewrites outdated pages.
"""

import ast
import builtins
import importlib
import importlib.util
import inspect
import re
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import bregopt as bo
from bregopt import cli
from bregopt.errors import DEPRECATED
from bregopt.io.evaluate import FUNCTIONS
from bregopt.io.spec import KEYS
from bregopt.routes import registry
from bregopt.routes.base import Settings

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import pages  # noqa: E402

PAGES = pages.PAGES
OPTIONAL = ("sklearn", "networkx", "pandas", "matplotlib")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch, plug_ins):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")


def text_of(name):
    return (ROOT / "docs" / name).read_text()


def need(source):
    for package in OPTIONAL:
        if re.search(rf"^\s*(import|from) {package}", source, re.MULTILINE):
            pytest.importorskip(package)


RUN = [page for page in PAGES if pages.PART.search(page.read_text())]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_prints_what_it_shows(page):
    need(page.read_text())
    wrong = [difference for output in pages.run(page) for difference in output.differences()]
    assert not wrong, "\n".join([*wrong, "`make docs-numbers` writes what is printed into the pages"])


@pytest.mark.parametrize(
    ("shown", "printed", "free", "same"),
    [
        ("value 0.27856277", "value 0.27856278", (), True),  # one unit of the last digit
        ("value 0.27784041", "value 0.27856277", (), False),
        ("value 0.279", "value 0.27856277", (), True),
        ("value 0.279", "value 0.2812", (), False),
        ("[-0.5  1. ]", "[-0.5   1. ]", (), True),
        ("[-0.5  1. ]", "[ 0.5   1. ]", (), False),
        ("3 of 7,512", "3 of 7,513", (), False),
        ("gap 1.5e-13", "gap 4.0e-15", (), True),
        ("gap 2e-10", "gap 9e-10", (), True),
        ("gap 2e-10", "gap 4e-07", (), False),
        ("gap 4e-07", "gap 2e-10", (), False),
        ("value 9.7975164 certified gap 4.6e-07", "value 9.7975131 certified gap 4.9e-07", (), True),
        ("value 9.7975164 certified gap 4.6e-07", "value 9.7975264 certified gap 4.9e-07", (), False),
        ("bound 9.0e+11", "bound 8.0e+11", (), False),
        ("4 iterations, 0.1 s", "5 iterations, 2.3 s", (), False),
        ("4 iterations, 0.1 s", "5 iterations, 2.3 s", ("iterations", "s"), True),
        ("x\ncvxpy 1.5 2.5", "x\ncvxpy 1.7 2.9", ("cvxpy",), True),
        ("value  seconds\n  1.5      2.5", "value  seconds\n  1.5      7.5", ("seconds",), True),
        ("value  seconds\n  1.5      2.5", "value  seconds\n  1.6      2.5", ("seconds",), True),
        ("value  seconds\n  1.5      2.5", "value  seconds\n  1.8      2.5", ("seconds",), False),
        ("a 1\n...\n", "a 1\nb 2\n", (), True),
        ("a 1\n...\n", "a 2\nb 2\n", (), False),
        ("a 1\n", "a 1\nb 2\n", (), False),
    ],
)
def test_numbers_agree_to_the_digits_that_are_shown(shown, printed, free, same):
    output = pages.Output(0, 0, shown, printed, free)
    assert (not output.differences()) == same
    assert not pages.Output(0, 0, output.corrected(), printed, free).differences()


def test_a_refreshed_page_shows_what_its_code_prints(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint('value', 0.25)\nprint('3 steps')\n```\n\n<!-- free: steps -->\n\n"
        "```text\nvalue 0.5\n2 steps\n```\n\n<!-- python\nassert 1 + 1 == 2\n-->\n"
    )
    assert pages.refresh(page) == 1
    assert "```text\nvalue 0.25\n3 steps\n```" in page.read_text()
    assert pages.refresh(page) == 0
    page.write_text(page.read_text().replace("1 + 1 == 2", "1 + 1 == 3"))
    with pytest.raises(AssertionError):
        pages.refresh(page)


def test_a_table_is_remade_by_its_command(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "print('| n |\\n|---|\\n| 0 |\\n')\n"
        "print('| n | v |\\n|---|---|\\n| 1 |', sys.argv[1], '|')\n"
    )
    page = tmp_path / "page.md"
    made = "<!-- made by: python script.py FOLDER -->\n\n| n | v |\n|--:|---|\n"
    page.write_text(f"Before.\n\n{made}| 2 | old |\n\nAfter.\n")
    monkeypatch.setattr(pages, "PAGES", [page])
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.remake("script", Path("new"))
    assert page.read_text() == f"Before.\n\n{made}| 1 | new |\n\nAfter.\n"
    with pytest.raises(SystemExit):
        pages.remake("script", None)


def test_every_maker_of_a_table_exists():
    makers = {made["command"] for page in PAGES for made in pages.MADE.finditer(page.read_text())}
    assert makers
    for command in makers:
        program, script, *_ = command.split()
        assert program == "python"
        assert (ROOT / script).exists(), command


def test_every_example_is_a_page_of_the_gallery():
    # The build of the site runs them; papers and specs have pages of their own.
    assert not list((ROOT / "examples").glob("*.py")), "an example belongs to a group"
    groups = {path.parent for path in (ROOT / "examples").glob("*/*.py")} - {ROOT / "examples" / "papers"}
    for group in groups:
        assert (group / "GALLERY_HEADER.rst").exists(), group.name
        assert f'"{group.name}"' in (ROOT / "docs" / "conf.py").read_text()
    for path in (path for group in groups for path in group.glob("*.py")):
        title, rule, blank, *text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")
        assert rule == "=" * len(title), path.name
        assert not blank, path.name
        assert text, path.name


def test_groups_of_the_sidebar_are_short_and_the_gallery_has_the_same():
    groups = dict(re.findall(r":caption: (.*)\n(?::.*\n)*\n((?:.+\n)+?)```", text_of("index.md")))
    assert len(groups) >= 8
    assert all(len(entries.split("\n")[:-1]) <= 8 for entries in groups.values())
    of_gallery = [
        path.read_text().split("\n")[0] for path in (ROOT / "examples").glob("*/GALLERY_HEADER.rst")
    ]
    assert of_gallery
    assert set(of_gallery) <= set(groups)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [5, None])
def test_figures_are_small_and_drawn_by_their_script(tmp_path, rounds):
    pytest.importorskip("matplotlib")
    draw = runpy.run_path(str(ROOT / "docs" / "figures.py"))["main"]
    if rounds is not None:  # of the method as published, whose curve takes the longest
        draw.__globals__["GIVEN_UP"] = rounds
    draw(tmp_path)
    committed = sorted((ROOT / "docs" / "figures").glob("*.png"))
    assert [p.name for p in committed] == sorted(p.name for p in tmp_path.glob("*.png"))
    assert all(p.stat().st_size < 80_000 for p in [*committed, *tmp_path.glob("*.png")])


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   bregopt\.(\w+)$", text_of("reference/index.md"), re.MULTILINE)
    assert sorted(listed) == sorted(bo.__all__)


def test_the_page_of_each_function_begins_with_a_use_that_runs(tmp_path):
    for package in OPTIONAL:
        pytest.importorskip(package)
    runpy.run_path(str(ROOT / "docs" / "reference" / "uses.py"))
    uses = pages.uses()
    listed = re.findall(r"^   (bregopt\.[\w.]+)$", text_of("reference/index.md"), re.MULTILINE)
    assert set(uses) <= set(listed)
    functions = {name for name in bo.__all__ if inspect.isfunction(getattr(bo, name))}
    learners = {name for name in listed if re.fullmatch(r"bregopt\.(learn|online)\.[A-Z]\w+", name)}
    needed = {f"bregopt.{name}" for name in functions - {"register_solver"}} | learners - {
        "bregopt.online.Loss"
    }
    assert not needed - set(uses)
    for name, (code, _) in uses.items():
        assert f"{name.rpartition('.')[2]}(" in code or name == "bregopt.cvxpy.solve", name


def test_code_for_the_last_version_needs_the_changes_that_the_page_names():
    before = re.findall(r"^```py\n(.*?)^```$", text_of("upgrade.md"), re.MULTILINE | re.DOTALL)
    assert len(before) == 5
    for code in before:
        expected = re.search(r"# (\w+)$", code, re.MULTILINE)[1]
        with warnings.catch_warnings(), pytest.raises(getattr(builtins, expected)) as caught:
            warnings.simplefilter("error")
            exec(code, {"np": np, "bo": bo})
        assert type(caught.value).__name__ == expected


def test_old_names_warn_where_they_are_called_until_they_go():
    learn = pytest.importorskip("bregopt.learn", exc_type=ImportError)
    with pytest.warns(DeprecationWarning, match=r"use bregopt\.learn\.idealized_bounds") as caught:
        old = learn.idealised_bounds(np.eye(3), [[0, 1]], [[0, 2]])
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(old, learn.idealized_bounds(np.eye(3), [[0, 1]], [[0, 2]]))
    assert DEPRECATED
    for name, (new, removal) in DEPRECATED.items():
        now, then = ([int(part) for part in version.split(".")] for version in (bo.__version__, removal))
        assert now < then, f"{name} was to go in {removal}"
        assert f"`{name}` warns, and {removal} will not have it" in text_of("upgrade.md")
        module, _, attribute = new.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


def test_experimental_names_are_those_of_other_modules_and_of_a_list():
    found = pages.experimental()
    assert {"bregopt.key_rate", "bregopt.certify.certify"} <= set(found)
    assert not {"bregopt.nearest_correlation", "bregopt.learn.KernelLearner"} & set(found)
    listed = text_of("upgrade.md").partition("<!-- experimental -->")[2].split("\n\n")[1]
    assert set(re.findall(r"`bregopt\.(\w+)`", listed)) <= set(bo.__all__)


def test_every_name_in_the_reference_exists():
    listed = re.findall(r"^   (bregopt\.[\w.]+)$", text_of("reference/index.md"), re.MULTILINE)
    if not importlib.util.find_spec("sklearn"):
        listed = [name for name in listed if not name.startswith(("bregopt.learn.", "bregopt.online."))]
    missing = []
    for name in listed:
        module, _, attribute = name.rpartition(".")
        if not hasattr(importlib.import_module(module), attribute):
            missing.append(name)
    assert listed
    assert not missing


def test_every_route_has_a_page_that_names_its_options():
    pages = {p.stem: p.read_text() for p in (ROOT / "docs" / "routes").glob("*.md") if p.stem != "index"}
    assert set(pages) == set(bo.solvers())
    shared = set(Settings.__dataclass_fields__)
    for name, cls in registry.load_all().items():
        for option in set(cls.Settings.__dataclass_fields__) - shared:
            assert f"`{option}`" in pages[name], f"{name}: {option}"


def test_every_shared_option_and_function_is_on_the_page_of_the_language():
    page = text_of("semidefinite/modeling.md")
    assert not [name for name in Settings.__dataclass_fields__ if f"`{name}`" not in page]
    of_specs = text_of("scale/command-line.md")
    assert not [name for name in FUNCTIONS if f"bo.{name}" not in page and f"`{name}(" not in of_specs]


def test_every_key_and_command_line_option_is_on_its_page(capsys):
    page = text_of("scale/command-line.md")
    assert not [key for keys in KEYS.values() for key in keys if key not in page]
    for command in ("solve", "check", "explain", "demo"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
        assert not [option for option in options if f"`{option}`" not in page], command


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            to = page.parent / target
            made = re.search(r"gallery/(.*)\.rst$", target)  # made of the examples by the build of the site
            if made:
                of = "GALLERY_HEADER.rst" if made[1] == "index" else f"{made[1]}.py"
                to = ROOT / "examples" / of
            assert to.exists(), f"{page.name} links to {target}"
