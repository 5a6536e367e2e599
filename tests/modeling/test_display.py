"""Problems and answers as text, LaTeX and HTML."""

import io
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import bregopt as bo
from bregopt.modeling.notation import ATOMS, HTML, LATEX, UNICODE, written

LABELS = [
    ("trace(X) <= 1", "tr X ≤ 1", r"\operatorname{tr} X \le 1"),
    ("1 <= 2 trace(X) <= t", "1 ≤ 2 tr X ≤ t", r"1 \le 2\,\operatorname{tr} X \le t"),
    ("trace(X + Y) @ z", "tr(X + Y) z", r"\operatorname{tr}(X + Y)\,z"),
    ("trace(X) * p", "(tr X) p", r"(\operatorname{tr} X)\,p"),
    ("soft(trace(X) <= 1)", "tr X ≤ 1 (soft)", r"\operatorname{tr} X \le 1\,\text{(soft)}"),
    ("2 (X[0, 0] - X[1, 1]) == t", "2 (X[0, 0] − X[1, 1]) = t", r"2\,(X_{0,0} - X_{1,1}) = t"),
    ("-X[...] + 3 u >= 1e-05", "−X[…] + 3 u ≥ 1e-05", r"-X_{\ldots} + 3\,u \ge 10^{-5}"),
    ("-(x + y) >= 2.5e+10", "−(x + y) ≥ 2.5e+10", r"-(x + y) \ge 2.5 \cdot 10^{10}"),
    ("sq_distance(K, [0, ...], 3)", "d_K²([0, …], 3)", r"d_{K}^{2}(\text{[0, …]}, 3)"),
    ("t logdet_div(X)", "t D_LogDet(X, X₀)", r"t\,D_{\mathrm{LogDet}}(X, X_{0})"),
    ("frobenius_div(X3)", "‖X3 − X3₀‖²", r"{\lVert X_{3} - {X_{3}}_{0} \rVert}_{F}^{2}"),
    ("sum(u) + norm2(x - X[0, 1])", "Σ u + ‖x − X[0, 1]‖", r"\textstyle\sum u + \lVert x - X_{0,1} \rVert"),
    ("sum(X, axis=0)", "sum(X, axis = 0)", r"\operatorname{sum}(X, \mathit{axis} = 0)"),
    ("quad_form(Z, X)", "diag(Z X Zᵀ)", r"\operatorname{diag}(Z\,X\,Z^{\top})"),
    ("quad_form(z, X)", "zᵀ X z", r"z^{\top}\,X\,z"),
    ("M @ X @ M.T >> B", "M X Mᵀ ⪰ B", r"M\,X\,M^{\top} \succeq B"),
    ("norm1(x) + norm_inf(y)", "‖x‖₁ + ‖y‖_∞", r"\lVert x \rVert_{1} + \lVert y \rVert_{\infty}"),
    ("sum_squares(x_train - 1)", "‖x_train − 1‖²", r"\lVert x_{\mathrm{train}} - 1 \rVert^{2}"),
    ("quad_over_lin(x, y - 1)", "‖x‖² / (y − 1)", r"\lVert x \rVert^{2} / (y - 1)"),
    ("pos(x - 1)", "(x − 1)₊", "(x - 1)_{+}"),
    ("lambda_max(X) <= alpha", "λ_max(X) ≤ α", r"\lambda_{\mathrm{max}}(X) \le \alpha"),
    ("a + b + ...", "a + b + …", r"a + b + \cdots"),
    ("my_own(x, y)", "my_own(x, y)", r"\operatorname{my\_own}(x, y)"),
    ("CVXPY's row 0 == 1", "CVXPY's row 0 = 1", r"\text{CVXPY's row 0} = 1"),
    ("50% {x} # <b>", "50% {x} # <b>", r"\text{50\% \{x\} \# <b>}"),
    ("f(x <= 2", "f(x ≤ 2", r"\text{f(x} \le 2"),
    ("trace()", "trace()", r"\text{trace()}"),
]


@pytest.mark.parametrize(("label", "text", "latex"), LABELS)
def test_labels_in_mathematical_notation(label, text, latex):
    assert written(label, UNICODE) == text
    assert written(label, LATEX) == latex


@pytest.mark.parametrize("atom", ATOMS)
def test_an_atom_with_other_arguments_is_written_as_a_function(atom):
    for arguments in ("x, y, z, w", "x"):
        for style in (UNICODE, LATEX, HTML):
            assert "x" in written(f"{atom}({arguments})", style)


def balanced(text):
    """Whether brackets of LaTeX match, those that are text aside."""
    plain = re.sub(r"\\text\{[^{}]*\}|\\[{}]", "", text)
    return plain.count("{") == plain.count("}") and text.count(r"\begin") == text.count(r"\end")


class Tags(HTMLParser):
    """Checks that tags match, and collects the text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.text = [], []
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def problem():
    X, t = bo.PSD(3, name="X"), bo.Parameter(value=6.0, name="t")
    u, v = (
        bo.Variable(2, name="u", nonneg=True),
        bo.Variable((2, 2), name="v", lower=-1, upper=[[1, 2], [3, 4]]),
    )
    objective = 0.1 * bo.logdet_div(X, np.eye(3)) + bo.inner(np.ones((3, 3)), X) + 2 * bo.sum(u) - 3
    rows = [
        (bo.trace(X) <= t).named("a <b> & {c}"),
        bo.diag(X) == 1,
        bo.norm2(u - 1) <= X[0, 0] + v[0, 0],
    ]
    return bo.Problem(bo.Minimize(objective), rows)


def test_a_problem_as_text():
    assert str(problem()).splitlines() == [
        "minimize    0.1 D_LogDet(X, X₀) + ⟨A, X⟩ + 2 Σ u − 3",
        "subject to  a <b> & {c}: tr X ≤ t",
        "            diag(X) = 1   (3 rows)",
        "            ‖u − 1‖ ≤ X[0, 0] + v[0, 0]",
        "over        X ⪰ 0 (3 × 3), u ≥ 0 (2), −1 ≤ v ≤ upper (2 × 2)",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_a_terminal_without_the_symbols_shows_the_labels(encoding, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    print(problem())  # noqa: T201
    output.flush()
    assert output.buffer.getvalue().decode(encoding).splitlines() == [
        "minimize    0.1 logdet_div(X) + inner(A, X) + 2 sum(u) - 3",
        "subject to  a <b> & {c}: trace(X) <= t",
        "            diag(X) == 1   (3 rows)",
        "            norm2(u - 1) <= X[0, 0] + v[0, 0]",
        "over        X 3 x 3 psd, u >= 0 (2,), -1 <= v <= upper (2, 2)",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", None, "utf-16"])
def test_other_outputs_show_the_symbols(encoding, monkeypatch):
    output = io.StringIO() if encoding is None else io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    assert "tr X ≤ t" in str(problem())


def test_of_many_constraints_the_last_is_shown():
    X = bo.PSD(2, name="X")
    lines = str(bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= k for k in range(100)])).splitlines()
    assert len(lines) == 23
    assert lines[20] == "            …   (80 more constraints)"
    assert lines[21].strip() == "X[0, 0] ≥ 99"
    exactly = str(bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 0] >= k for k in range(21)]))
    assert len(exactly.splitlines()) == 23


def test_long_sums_are_elided():
    X = bo.PSD(30, name="X")
    objective = sum(X[k, k] * (k + 1) for k in range(30))
    (line, *_) = str(bo.Problem(bo.Minimize(objective))).splitlines()
    assert line.startswith("minimize    X[0, 0] + 2 X[1, 1] + 3 X[2, 2]")
    assert line.endswith("+ …")
    assert len(line) < 110


def shown():
    """Every object with a display of its own, and texts that each shows."""
    prob = problem()
    X = bo.PSD(2, name="X")
    impossible = bo.Problem(bo.Minimize(bo.trace(X)), [(bo.trace(X) <= 1).named("a_b"), X[0, 0] >= 2])
    sol = impossible.solve()
    unbounded = bo.Problem(bo.Maximize(bo.trace(X))).solve()
    check = bo.cross_check(bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] >= 1]), solvers=("path", "cvxpy"))
    cut = bo.max_cut(np.array([[0, 1], [1, 2], [2, 0]]))
    return [
        (prob, ["minimize", "subject to", "over"]),
        (sol, ["infeasible (path)", "inf"]),
        (unbounded, ["unbounded", "ray"]),
        (sol.conflict(), ["a_b", "multiplier", "trace(X) <= 1"]),
        (check, ["bound", "gap", "cvxpy", "2 routes agree"]),
        (cut, ["weight 2 into", "optimal (enumeration)", "4 partitions"]),
    ]


def test_html_and_latex_of_problems_and_answers():
    for item, texts in shown():
        text = "".join(Tags(item._repr_html_()).text)
        latex = item._repr_latex_()
        assert balanced(latex), latex
        assert latex.count("$$") == 2
        for expected in texts:
            assert expected in text
            assert expected.replace("_", r"\_") in latex


def test_html_escapes_what_the_user_writes():
    assert "<b>" not in problem()._repr_html_()
    assert "(a <b> & {c})" in "".join(Tags(problem()._repr_html_()).text)
    X = bo.PSD(2, name="<script>")
    assert "<script>" not in bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1])._repr_html_()


def test_a_solved_problem_shows_its_value():
    X = bo.PSD(2, name="X")
    prob = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 1])
    assert "optimal" not in prob._repr_html_()
    prob.solve()
    assert "optimal, value 2" in prob._repr_html_()


def test_constraints_and_expressions_have_latex():
    X = bo.PSD(2, name="X")
    assert (bo.trace(X) <= 1)._repr_latex_() == r"$\operatorname{tr} X \le 1$"
    assert (bo.trace(X) + 2)._repr_latex_() == r"$\operatorname{tr} X + 2$"
    assert bo.Minimize(bo.trace(X) - 1)._repr_latex_() == r"$\operatorname{tr} X - 1$"
    assert (bo.norm2(X - 1) <= 3)._repr_latex_() == r"$\lVert X - 1 \rVert \le 3$"
    assert (bo.lambda_max(X) <= 3)._repr_latex_() == r"$\lambda_{\mathrm{max}}(X) \le 3$"
