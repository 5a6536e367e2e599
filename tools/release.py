"""Build the sdist and the wheel, and check what a user would install.

    make release

Nothing is published. The script works in ``build/release``, and puts the two files into ``dist`` after all
checks: all files state one version, twine accepts both files, the wheel holds the package only, and the
recipe of the conda package installs it. On each Python of this machine that bregopt supports, wheel and sdist
are installed in new environments, where they are imported, solve a problem and run the command line; the
wheel also runs ``bregopt demo``.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = ROOT / "build" / "release"
DIST = ROOT / "dist"

MATRIX = "1,0.9,-0.4\n0.9,1,0.3\n-0.4,0.3,1\n"  # not a correlation matrix: it has an eigenvalue of -0.12
SOLVE = """
import pathlib
import sys

import numpy as np

import bregopt as bo

assert pathlib.Path(bo.__file__).is_relative_to(sys.prefix), bo.__file__
sol = bo.nearest_correlation(np.loadtxt("matrix.csv", delimiter=","))
assert sol.status == "optimal", sol
print(bo.__version__)
"""


def run(*command, cwd=ROOT):
    """Run a command, and return what it prints; an error ends the release and shows the output."""
    words = [str(word) for word in command]
    # With PYTHONPATH Python could import the checkout instead of the installed package.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(name, *packages, python=sys.executable):
    """Return the folder of commands of a new virtual environment with the given packages."""
    folder = SCRATCH / name
    run(python, "-m", "venv", folder)
    commands = folder / ("Scripts" if sys.platform == "win32" else "bin")
    run(commands / "python", "-m", "pip", "install", "--quiet", *packages)
    return commands


def pythons(root=ROOT):
    """Return the Pythons of this machine that bregopt supports, as a dict from versions to commands."""
    stated = tomllib.loads((root / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = tuple(map(int, re.fullmatch(r">=(\d+)\.(\d+)", stated).groups()))
    shims = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [sys.executable, *(f"python3.{minor}" for minor in range(oldest[1], 30))]
    candidates += [str(path) for path in sorted(shims.glob("*/bin/python"))]
    found = {}
    for command in filter(None, map(shutil.which, candidates)):
        # A shim of pyenv whose version is not chosen fails.
        ask = [command, "-c", "import sys, venv; print(*sys.version_info[:2])"]
        answer = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
        if answer and tuple(map(int, answer)) >= oldest:
            found.setdefault(".".join(answer), command)
    return found


def versions(root=ROOT):
    """Return the version that each file states; the changelog's is that of its newest numbered section."""
    module = ast.parse((root / "bregopt" / "__init__.py").read_text())
    dunder = [
        node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    return {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        "bregopt/__init__.py": dunder[0],
        "CITATION.cff": re.findall(r"^version: *(\S+)", (root / "CITATION.cff").read_text(), re.M)[0],
        "tools/recipe.yaml": re.findall(r'version: "(.*)"', (root / "tools/recipe.yaml").read_text())[0],
        "CHANGELOG.md": re.findall(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(), re.M)[0],
    }


def agreed_version(root=ROOT):
    """Return the version on which all files agree."""
    stated = versions(root)
    if len(set(stated.values())) > 1:
        sys.exit("The versions differ: " + ", ".join(f"{name} {value}" for name, value in stated.items()))
    return stated["pyproject.toml"]


def unreleased(root=ROOT):
    """Return the number of entries of the changelog without a version."""
    section = (root / "CHANGELOG.md").read_text().partition("## [Unreleased]")[2].partition("\n## [")[0]
    return len(re.findall(r"^- ", section, re.M))


def check_wheel(wheel):
    """Check that a wheel holds the package's files in git and its metadata, and nothing else."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    known = set(run("git", "ls-files", "--", "bregopt", "bregopt_check*.py").split())
    needed = {"bregopt/py.typed", "bregopt/io/spec.schema.json"}
    if wrong := sorted(held ^ (known | needed)):
        sys.exit(f"{wheel.name} and the files of the package in git differ by {', '.join(wrong)}.")


def check_recipe(root=ROOT):
    """Check that the recipe of the conda package has the requirements and commands of pyproject.toml."""
    recipe = (root / "tools" / "recipe.yaml").read_text()
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]

    def listed(key):
        lines = re.search(rf"^ *{key}:\n((?: *- .*\n)+)", recipe, re.MULTILINE)[1].splitlines()
        return [line.strip(" -").replace(" >=", ">=") for line in lines]

    needed = {
        "run": [f"python{project['requires-python']}", *project["dependencies"]],
        "entry_points": [f"{name} = {call}" for name, call in project["scripts"].items()],
    }
    for key, expected in needed.items():
        if wrong := sorted(set(listed(key)) ^ set(expected)):
            sys.exit(f"{key} of tools/recipe.yaml and pyproject.toml differ by {', '.join(wrong)}.")
    return re.search(r"script: \$\{\{ PYTHON \}\} (.*)", recipe)[1].split()


def build_recipe(sdist, version):
    """Run the recipe's script on the sdist, where its requirements are installed and nothing else is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = environment("recipe", "hatchling", *project["dependencies"])
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4
        archive.extractall(SCRATCH / "source")
    run(commands / "python", *check_recipe(), cwd=SCRATCH / "source" / f"bregopt-{version}")
    run(commands / "python", "-m", "pip", "check")
    run(commands / "python", "-I", "-c", "import bregopt, bregopt.cvxpy", cwd=SCRATCH)


def check_installed(file, version, python, extras=""):
    """Install a wheel or sdist in a new environment; import, solve and run the command line there."""
    commands = environment("fresh", f"{file}{extras}", python=python)
    (SCRATCH / "matrix.csv").write_text(MATRIX)
    run(commands / "python", "-m", "pip", "check")
    solve = "nearest-correlation", "--output", "repaired.csv"
    said = {
        "import bregopt": run(commands / "python", "-I", "-c", SOLVE, cwd=SCRATCH).strip(),
        "bregopt --version": run(commands / "bregopt", "--version", cwd=SCRATCH).split()[-1],
    }
    run(commands / "bregopt", "solve", "matrix.csv", "--problem", *solve, cwd=SCRATCH)
    if wrong := {call: found for call, found in said.items() if found != version}:
        sys.exit(f"The installed package is not {version}: {wrong}")
    if extras:
        said = run(commands / "bregopt", "demo", cwd=SCRATCH)
        if "Every answer agrees with CVXPY" not in said:
            sys.exit(f"bregopt demo of the wheel does not agree with CVXPY:\n{said}")
    shutil.rmtree(SCRATCH / "fresh")


def main():
    """Build both files, check them, and put them into `dist`."""
    version = agreed_version()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    built = SCRATCH / "dist"
    tools = environment("tools", "build", "twine")
    # The wheel is built from the sdist, which shows that the sdist is complete.
    run(tools / "python", "-m", "build", "--outdir", built)
    run(tools / "python", "-m", "twine", "check", "--strict", *built.iterdir())
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    check_wheel(wheel)
    build_recipe(sdist, version)
    for number, python in pythons().items():
        check_installed(sdist, version, python)
        check_installed(wheel, version, python, extras="[learn,graph,plot]")
        print(f"Python {number}: sdist and wheel install and solve, and the demo runs")
    DIST.mkdir(exist_ok=True)
    for file in (sdist, wheel):
        shutil.copy(file, DIST)
        print((DIST / file.name).relative_to(ROOT))
    if count := unreleased():
        print(f"These files are for trial only: the changelog has {count} entries under [Unreleased].")


if __name__ == "__main__":
    main()
