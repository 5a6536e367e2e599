"""The release script refuses inconsistent files; `make release` runs the whole script."""

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

import bregopt as bo

ROOT = Path(__file__).parents[2]
FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.0"\n',
    "bregopt/__init__.py": '"""A package."""\n__version__ = "1.2.0"\n',
    "CITATION.cff": "cff-version: 1.2.0\nversion: 1.2.0\n",
    "tools/recipe.yaml": (ROOT / "tools" / "recipe.yaml").read_text().replace(bo.__version__, "1.2.0"),
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n### Added\n\n- All.\n",
}


@pytest.fixture
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_this_checkout_states_one_version(release):
    assert release.agreed_version() == bo.__version__


@pytest.mark.parametrize("name", FILES)
def test_a_version_that_one_file_alone_states_is_refused(release, checkout, name):
    assert release.agreed_version(checkout) == "1.2.0"
    (checkout / name).write_text(FILES[name].replace("1.2.0", "1.3.0"))
    with pytest.raises(SystemExit, match=rf"{name} 1\.3\.0"):
        release.agreed_version(checkout)


def test_a_recipe_with_other_requirements_or_commands_is_refused(release, tmp_path):
    assert release.check_recipe()[:4] == ["-m", "pip", "install", "."]
    (tmp_path / "tools").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    recipe = (ROOT / "tools" / "recipe.yaml").read_text()
    for old, new in (("scipy >=1.13", "scipy >=1.12"), ("bregopt.cli:main", "bregopt.cli:run")):
        (tmp_path / "tools" / "recipe.yaml").write_text(recipe.replace(old, new))
        with pytest.raises(SystemExit, match=new.replace(" ", "")):
            release.check_recipe(tmp_path)


def test_this_python_is_among_those_of_the_machine(release):
    found = release.pythons()
    assert ".".join(map(str, sys.version_info[:2])) in found
    assert all(int(number.split(".")[1]) >= 11 for number in found)


def test_entries_without_a_version_are_counted(release, checkout):
    assert release.unreleased(checkout) == 0
    new = "## [Unreleased]\n\n### Fixed\n\n- One\n  thing.\n- Another.\n"
    (checkout / "CHANGELOG.md").write_text(FILES["CHANGELOG.md"].replace("## [Unreleased]\n", new))
    assert release.unreleased(checkout) == 2


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("bregopt/py.typed", None), ("bregopt/cli.py", None), (None, "tests/test_cli.py")],
)
def test_a_wheel_that_lacks_or_adds_a_file_is_refused(release, tmp_path, monkeypatch, missing, extra):
    known = ["bregopt/cli.py", "bregopt/io/spec.schema.json", "bregopt/py.typed"]
    monkeypatch.setattr(release, "run", lambda *_: "\n".join(known))
    wheel = tmp_path / "bregopt.whl"

    def write(names):
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in [*names, "bregopt-1.2.0.dist-info/METADATA"]:
                archive.writestr(name, "")

    write(known)
    release.check_wheel(wheel)
    write([name for name in [*known, extra] if name not in (missing, None)])
    with pytest.raises(SystemExit, match=missing or extra):
        release.check_wheel(wheel)
