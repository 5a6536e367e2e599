"""Statements of docs/trust/theorems.md made false, one at a time: the tests that the page names must fail.

    python tests/library/mutations.py [--only AUTHOR ...] [--rest K/N]

A mutation replaces one text by another in a copy of the package and its tests, and runs one test. Where the
statement is code of the package, the code is changed: a bound, a rate, a step. Otherwise a formula of the
test. Constants are halved or doubled, terms dropped, directions changed; only changes that make the statement
false are listed, so a bound is never made looser. The script prints the table of the page, and ends with
status 1 if a test passes. It takes some ten minutes; ``--rest 3/20`` runs every 20th mutation from the third.
"""

import argparse
import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trust" / "theorems.md"
COPIED = ("bregopt", "tests", "docs", "pyproject.toml", "README.md")

THEOREMS = "tests/project/test_theorems.py"
ONLINE = "tests/online/test_online_bounds.py"
BOOST = "tests/routes/test_definiteboost.py"
DIVERGENCES = "tests/divergences/test_divergences.py"


@dataclass(frozen=True)
class Mutation:
    """A text of a file that is replaced, and the test that must then fail.

    Attributes
    ----------
    statement : str
        As in the first column of the page, after the paper's first author.
    change : str
        What becomes false, in words.
    file, old, new : str
        The text `old` occurs once in the file.
    test : str
        As on the page.
    """

    statement: str
    change: str
    file: str
    old: str
    new: str
    test: str


def _mutations() -> Iterator[Mutation]:
    for statement, test, file, changes in CHANGES:
        for change, old, new in changes:
            yield Mutation(statement, change, file, old, new, test)


JENSEN = "test_theorems.py::test_jensen_for_the_matrix_exponential"
LARGER = "test_theorems.py::test_a_larger_matrix_has_a_larger_product"
PROGRESS = "test_theorems.py::test_progress_of_meg_is_attained"
MEG = "test_theorems.py::test_loss_bound_of_meg_is_attained"
STEP = "test_definiteboost.py::TestStep::test_approximate_step_minimizes_the_bound_and_exact_one_the_trace"
ADVERSARY = "test_definiteboost.py::TestBound::test_an_adversary_needs_nearly_as_many_steps"
RISES = "test_definiteboost.py::TestBound::test_holds_and_the_dual_rises"
EIGENVECTORS = "test_theorems.py::test_divergences_by_eigenvectors"
BASIS = "test_theorems.py::test_divergence_on_the_range_does_not_depend_on_its_basis"
LOW_RANK = "test_theorems.py::test_optimum_of_low_rank_by_eigenvectors"
RANGE = "test_theorems.py::test_logdet_projection_keeps_the_range"
CONGRUENCE = "test_divergences.py::test_logdet_congruence_and_scale_invariance"
WINNOW = "test_online_bounds.py::test_an_adversary_makes_winnow_nearly_as_bad_as_theorem_2"
EXTREME = "test_theorems.py::test_extreme_points_of_trace_one"
BURG = "test_theorems.py::test_burg_bounds_are_nearly_attained"

PRODUCT = "assert np.vdot(A, B) <= np.vdot(A, C) + 1e-12 * n"
LIKE = "promised = eta * (y - told) ** 2 - b * (y - fitted) ** 2"
LINE = "line = np.eye(n) - (1 - math.exp(a)) * A  # b = 0"
LARGER_CHANGES = [
    ("tr AC times .9", PRODUCT, PRODUCT.replace("<= np", "<= 0.9 * np")),
    ("tr AC halved", PRODUCT, PRODUCT.replace("<= np", "<= 0.5 * np")),
    ("tr AC doubled", PRODUCT, PRODUCT.replace("<= np", "<= 2 * np")),
    ("`>=` for `<=`", PRODUCT, "assert np.vdot(A, B) >= np.vdot(A, C) - 1e-12 * n"),
]

# The statement, the test, the file, and the changes: in words, the text and its replacement.
CHANGES: list[tuple[str, str, str, list[tuple[str, str, str]]]] = [
    (
        "Tsuda Lemma 2.1",
        JENSEN,
        THEOREMS,
        [
            ("e^a A halved", "above = math.exp(a) * A", "above = math.exp(a) / 2 * A"),
            ("e^b (I - A) halved", "+ math.exp(b) * rest\n", "+ math.exp(b) / 2 * rest\n"),
            ("e^b (I - A) dropped", " + math.exp(b) * rest\n", "\n"),
            ("a A doubled", "expm(a * A + b * rest)", "expm(2 * a * A + b * rest)"),
            ("`>=` for `<=`", "(above - expm(a * A + b * rest))", "(expm(a * A + b * rest) - above)"),
        ],
    ),
    ("Tsuda Lemma 2.2", LARGER, THEOREMS, LARGER_CHANGES),
    (
        "Tsuda Lemma 3.1",
        PROGRESS,
        THEOREMS,
        [
            ("b halved", LIKE, LIKE.replace("- b *", "- b / 2 *")),
            ("the comparator's loss dropped", LIKE, "promised = eta * (y - told) ** 2"),
            ("a doubled", LIKE, LIKE.replace("= eta *", "= 2 * eta *")),
            ("`>=` for `<=`", "assert promised <= progress * (1 + 1e-7)", "assert promised >= progress"),
        ],
    ),
    (
        "Tsuda Lemma 3.1",
        PROGRESS,
        "bregopt/online/meg.py",
        [
            (
                "the step halved",
                "G = add_instance(state.G, -step, x)",
                "G = add_instance(state.G, -step / 2, x)",
            ),
            (
                "the step doubled",
                "G = add_instance(state.G, -step, x)",
                "G = add_instance(state.G, -2 * step, x)",
            ),
            (
                "the step reversed",
                "G = add_instance(state.G, -step, x)",
                "G = add_instance(state.G, step, x)",
            ),
            (
                "without scaling to trace one",
                "exponential(G, 1.0 if normalize else None)",
                "exponential(G, None)",
            ),
        ],
    ),
    (
        "Tsuda Lemma 3.2",
        MEG,
        "bregopt/online/meg.py",
        [
            ("divergence / eta halved", "+ divergence / eta\n", "+ divergence / eta / 2\n"),
            ("divergence / eta dropped", " + divergence / eta\n", "\n"),
            ("the comparator's loss halved", "(loss / slack if", "(loss / slack / 2 if"),
            ("the comparator's loss dropped", "(loss / slack if loss else 0.0)", "0.0"),
            (
                "r^2 halved",
                "slack = 1 - eta * smoothness * r**2 / 4",
                "slack = 1 - eta * smoothness * r**2 / 8",
            ),
            (
                "the step halved",
                "G = add_instance(state.G, -step, x)",
                "G = add_instance(state.G, -step / 2, x)",
            ),
            (
                "the step doubled",
                "G = add_instance(state.G, -step, x)",
                "G = add_instance(state.G, -2 * step, x)",
            ),
        ],
    ),
    (
        "Tsuda Theorem 4.1",
        STEP,
        "bregopt/routes/definiteboost/boost.py",
        [
            ("alpha halved", ")) / float(self.range[k])", ")) / (2 * float(self.range[k]))"),
            ("alpha doubled", ")) / float(self.range[k])", ")) * 2 / float(self.range[k])"),
            ("alpha reversed", "(math.log1p(-r / least) -", "-(math.log1p(-r / least) -"),
            ("one end's logarithm dropped", " - math.log1p(-r / largest))", ")"),
        ],
    ),
    (
        "Tsuda Theorem 4.1",
        STEP,
        BOOST,
        [
            ("an exponent of rho halved", "** (high / (high - low))", "** (high / 2 / (high - low))"),
            ("the other exponent dropped", "* (1 - r / low) ** (-low / (high - low))", "* 1"),
        ],
    ),
    (
        "Tsuda Corollary 4.2",
        ADVERSARY,
        "bregopt/routes/definiteboost/boost.py",
        [
            (
                "the bound halved",
                "largest_divergence / (2 * violation**2)",
                "largest_divergence / (4 * violation**2)",
            ),
            (
                "1 / eps for 1 / eps^2",
                "largest_divergence / (2 * violation**2)",
                "largest_divergence / (2 * violation)",
            ),
        ],
    ),
    (
        "Tsuda Corollary 4.2",
        ADVERSARY,
        "bregopt/routes/definiteboost/boost.py",
        [("steps a quarter as long", ")) / float(self.range[k])", ")) / (4 * float(self.range[k]))")],
    ),
    (
        "Tsuda Corollary 4.2",
        RISES,
        BOOST,
        [("the rise of the dual times 5", "assert (rise >= 2 * history", "assert (rise >= 10 * history")],
    ),
    (
        "Kulis Lemma 1",
        "test_theorems.py::test_spectral_divergence_by_eigenvectors",
        THEOREMS,
        [
            ("the slope halved", "(a - b) * 3 * c[j] * b**2", "(a - b) * 1.5 * c[j] * b**2"),
            ("the term of Y dropped", "c[i] * a**3 - c[j] * b**3", "c[i] * a**3"),
        ],
    ),
    (
        "Kulis Corollary 2",
        EIGENVECTORS,
        THEOREMS,
        [
            ("Frobenius halved", "(a - b) ** 2,", "(a - b) ** 2 / 2,"),
            ("a term of LogDet dropped", "a / b - math.log(a / b) - 1,", "a / b - math.log(a / b),"),
            ("a term of von Neumann dropped", "if a > 1e-12 else 0) - a + b,", "if a > 1e-12 else 0) + b,"),
        ],
    ),
    (
        "Kulis Lemma 3",
        BASIS,
        THEOREMS,
        [("one factor W' halved", "(W @ W.T @ Y @ W @ W.T, Y,", "(W @ W.T @ Y @ W @ W.T / 2, Y,")],
    ),
    (
        "Kulis Lemma 5",
        BASIS,
        THEOREMS,
        [("a basis that is not orthonormal", "for B in (W, W @ Q)]", "for B in (W, 2 * W @ Q)]")],
    ),
    (
        "Kulis Theorem 6",
        LOW_RANK,
        THEOREMS,
        [
            ("theta dropped", "if a > 1e-12 else 0) - a + b,", "if a > 1e-12 else 0) - a,"),
            ("the logarithm doubled", "(a * math.log(a / b) if", "(2 * a * math.log(a / b) if"),
        ],
    ),
    (
        "Kulis Theorem 6",
        "test_theorems.py::test_von_neumann_divergence_of_a_smaller_range",
        THEOREMS,
        [("the trace of Y halved", "sum(kept) + np.trace(Y)", "sum(kept) + np.trace(Y) / 2")],
    ),
    (
        "Kulis Theorem 7",
        LOW_RANK,
        THEOREMS,
        [
            ("the constant dropped", "a / b - math.log(a / b) - 1,", "a / b - math.log(a / b),"),
            ("the logarithm halved", "a / b - math.log(a / b) - 1,", "a / b - math.log(a / b) / 2 - 1,"),
        ],
    ),
    (
        "Kulis Lemma 8",
        BASIS,
        THEOREMS,
        [("the row halved", "np.vdot(W.T @ X @ W, W.T @ A @ W)", "np.vdot(W.T @ X @ W, W.T @ A @ W / 2)")],
    ),
    (
        "Kulis Lemma 9",
        RANGE,
        THEOREMS,
        [
            ("beta halved", "beta = (share - 1) / p", "beta = (share - 1) / p / 2"),
            ("beta reversed", "beta = (share - 1) / p", "beta = (1 - share) / p"),
            ("a rank more", "np.abs(w[:-3]).max() < 1e-12", "np.abs(w[:-2]).max() < 1e-12"),
        ],
    ),
    (
        "Kulis Lemma 10",
        RANGE,
        THEOREMS,
        [
            ("alpha halved", "(1 - 1 / share) / p\n", "(1 - 1 / share) / p / 2\n"),
            ("W W' dropped", "np.outer(W @ W.T @ z, W @ W.T @ z)", "np.outer(z, z)"),
        ],
    ),
    (
        "Kulis Proposition 11",
        "test_divergences.py::TestDivergence::test_orthogonal_invariance",
        DIVERGENCES,
        [
            ("X alone is transformed", "D(Q.T @ X0 @ Q).value", "D(X0).value"),
            ("Q halved for X", ".value(Q.T @ X @ Q)", ".value(Q.T @ X @ Q / 2)"),
        ],
    ),
    (
        "Kulis Proposition 12",
        CONGRUENCE,
        DIVERGENCES,
        [
            ("X alone is transformed", "LogDet(M.T @ X0 @ M).value", "LogDet(X0).value"),
            ("M doubled for X", ".value(M.T @ X @ M)", ".value(2 * M.T @ X @ M)"),
        ],
    ),
    (
        "Kulis Proposition 13",
        CONGRUENCE,
        DIVERGENCES,
        [
            ("halves of the wrong sign", "half = (Q / np.sqrt(w)) @ Q.T", "half = (Q * np.sqrt(w)) @ Q.T"),
            (
                "arguments exchanged",
                "VonNeumann(half @ X @ half).value(np.eye(5))",
                "VonNeumann(np.eye(5)).value(half @ X @ half)",
            ),
        ],
    ),
    (
        "Warmuth Lemma 1",
        JENSEN,
        THEOREMS,
        [
            ("1 - e^a doubled", LINE, LINE.replace("(1 - math", "2 * (1 - math")),
            ("1 - e^a halved", LINE, LINE.replace("(1 - math", "0.5 * (1 - math")),
            ("I halved", LINE, LINE.replace("np.eye(n) -", "np.eye(n) / 2 -")),
        ],
    ),
    ("Warmuth Lemma 2", LARGER, THEOREMS, LARGER_CHANGES),
    (
        "Warmuth Theorem 2",
        WINNOW,
        "bregopt/online/winnow.py",
        [
            (
                "the bound halved",
                "return (distance + eta * loss) / progress",
                "return (distance + eta * loss) / progress / 2",
            ),
            (
                "the update halved",
                "G = add_instance(state.G, eta * y, x)",
                "G = add_instance(state.G, eta * y / 2, x)",
            ),
            (
                "the update without the label",
                "G = add_instance(state.G, eta * y, x)",
                "G = add_instance(state.G, eta, x)",
            ),
            (
                "the threshold halved",
                "(1 + 2 * charge) / (2 * (math.exp(eta)",
                "(1 + 2 * charge) / (4 * (math.exp(eta)",
            ),
        ],
    ),
    (
        "Shen Lemma 3.3",
        EXTREME,
        THEOREMS,
        [("a step of twice the length", "step = min(w[-1], w[-2]) *", "step = 2 * min(w[-1], w[-2]) *")],
    ),
    (
        "Shen Theorem 3.4",
        EXTREME,
        THEOREMS,
        [("one weight dropped", "zip(w, V.T, strict=True)), Z", "zip(w[1:], V.T[1:], strict=True)), Z")],
    ),
    (
        "Shen Theorem 3.4",
        "test_psdboost.py::test_bound_is_the_largest_eigenvalue_of_the_weighted_comparisons",
        "tests/routes/test_psdboost.py",
        [
            (
                "the smallest eigenvalue",
                "np.linalg.eigvalsh(weighted)[-1], abs=1e-7",
                "np.linalg.eigvalsh(weighted)[0], abs=1e-7",
            )
        ],
    ),
    (
        "Jain Lemma 1",
        BURG,
        THEOREMS,
        [
            (
                "the comparator's loss halved",
                "(1 - s) * rate * loss <= rate * best / s + progress + 1e-9",
                "(1 - s) * rate * loss <= rate * best / s / 2 + progress + 1e-9",
            ),
            (
                "the comparator's loss dropped",
                "(1 - s) * rate * loss <= rate * best / s + progress + 1e-9",
                "(1 - s) * rate * loss <= progress + 1e-9",
            ),
            (
                "1 - s doubled",
                "(1 - s) * rate * loss <= rate * best / s + progress + 1e-9",
                "2 * (1 - s) * rate * loss <= rate * best / s + progress + 1e-9",
            ),
        ],
    ),
    (
        "Jain Lemma 1",
        BURG,
        "bregopt/online/burg.py",
        [
            (
                "the step halved",
                "moved: Array = w / (1 + step * seen",
                "moved: Array = w / (1 + step / 2 * seen",
            ),
            (
                "the step reversed",
                "moved: Array = w / (1 + step * seen",
                "moved: Array = w / (1 - step * seen",
            ),
        ],
    ),
    (
        "Jain Theorem 1",
        BURG,
        "bregopt/online/burg.py",
        [
            (
                "the bound halved",
                "return (share / s + progress) / (1 - s)",
                "return (share / s + progress) / (1 - s) / 2",
            ),
            (
                "the divergence halved",
                "progress, share = divergence / smallest,",
                "progress, share = divergence / smallest / 2,",
            ),
            ("the comparator's loss dropped", "return (share / s + progress) / (1 - s)", "return progress"),
            (
                "the limit of the rate doubled",
                "return min(1 / (2 * smoothness * seen.square), positive)",
                "return min(1 / (smoothness * seen.square), positive)",
            ),
            ("the limit of the domain doubled", "positive = 1 / (2 * fall)", "positive = 1 / fall"),
        ],
    ),
    (
        "Jain Lemma 2",
        "test_online_bounds.py::test_matrix_burg",
        "bregopt/online/matrix_burg.py",
        [
            ("the ceiling ignored", "max(float(shares[-1]), float(factors[-1][1][-1]))", "float(shares[-1])"),
            ("the ceiling ignored for vectors", "max(shares, factors[-1][1])", "shares"),
        ],
    ),
    (
        "Jain Lemma 3",
        BURG,
        "bregopt/online/matrix_burg.py",
        [
            (
                "the step halved",
                "root = (1 + step * m) ** 0.5\n",
                "step = step / 2\n    root = (1 + step * m) ** 0.5\n",
            ),
            (
                "the step reversed",
                "root = (1 + step * m) ** 0.5\n",
                "step = -step\n    root = (1 + step * m) ** 0.5\n",
            ),
        ],
    ),
    (
        "Jain Theorem 2",
        BURG,
        "bregopt/online/burg.py",
        [
            (
                "the bound halved",
                "return (share / s + progress) / (1 - s)",
                "return (share / s + progress) / (1 - s) / 2",
            ),
            (
                "the divergence dropped",
                "progress, share = divergence / smallest,",
                "progress, share = 0.0 * divergence,",
            ),
        ],
    ),
]

MUTATIONS = list(_mutations())


def copied(folder: Path) -> None:
    """Copy what the tests need into a folder."""
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis", "_build", "figures")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    compileall.compile_dir(folder / "bregopt", quiet=2)  # once; a changed file has another date


def catches(folder: Path, mutation: Mutation) -> bool:
    """Return whether the test of a mutation fails in the copy, once the statement is false."""
    file = folder / mutation.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(mutation.old) != 1:
        raise ValueError(
            f"{mutation.file} has {mutation.old!r} {whole.count(mutation.old)} times; expected once: "
            f"bring the mutations of {mutation.statement} up to date"
        )
    file.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return not passes(folder, [mutation.test])
    finally:
        file.write_text(whole, encoding="utf-8")


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Return whether tests of the copy pass."""
    call = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    variables = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    named = ["--hypothesis-profile=first_failure", *(_path_of(folder, test) for test in tests)]
    done = subprocess.run([*call, *named], cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # neither passed nor failed
        raise RuntimeError(f"pytest ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def _path_of(folder: Path, test: str) -> str:
    """Return a test with the path of its file, which is in a folder of the copy's tests."""
    file, *names = test.split("::")
    return "::".join([str(next((folder / "tests").rglob(file))), *names])


def run(mutations: list[Mutation]) -> dict[Mutation, bool]:
    """Return for each mutation whether it was caught; without mutations all tests must pass."""
    caught = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        if not passes(folder, sorted({mutation.test for mutation in mutations})):
            raise RuntimeError("a test fails without a mutation")
        for mutation in mutations:
            caught[mutation] = catches(folder, mutation)
            mark = "caught" if caught[mutation] else "SURVIVES"
            sys.stderr.write(f"{mark:<9} {mutation.statement}: {mutation.change}\n")
    return caught


def table(caught: dict[Mutation, bool]) -> str:
    """Return the table of the page in Markdown, one line for each statement."""
    lines = ["| statement made false | changes | caught |", "|---|---|--:|"]
    by_statement: dict[str, list[Mutation]] = defaultdict(list)
    for mutation in caught:
        by_statement[mutation.statement].append(mutation)
    for statement, own in by_statement.items():
        author, what = statement.split(" ", 1)
        found = sum(caught[mutation] for mutation in own)
        changes = "; ".join(mutation.change for mutation in own)
        lines.append(f"| {author}, {what} | {changes} | {found} of {len(own)} |")
    return "\n".join(lines)


def statements() -> set[str]:
    """Return the statements of the page that have a test, each after its paper's first author."""
    found = set()
    for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        author = re.split(r"\W", part)[0]
        for row in re.findall(r"^\| ([A-Z]\w+ [\d.]+) \|.*\| `test_", part, re.MULTILINE):
            found.add(f"{author} {row}")
    return found


def main() -> int:
    """Run the mutations and print their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], metavar="AUTHOR", help="Tsuda, Kulis, ...")
    parser.add_argument("--rest", default="0/1", metavar="K/N", help="every Nth mutation from the Kth")
    options = parser.parse_args()
    first, every = map(int, options.rest.split("/"))
    chosen = [m for m in MUTATIONS if m.statement.startswith(tuple(options.only))][first::every]
    caught = run(chosen)
    sys.stdout.write(table(caught) + "\n")
    return 0 if all(caught.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
