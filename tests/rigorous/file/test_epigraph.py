"""Files of problems with convex terms: both bounds hold closed forms, and no forged file proves others."""

import copy
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from test_check import bounds, changed, saved, write

import bregopt as bo
import bregopt_check as check
from bregopt.records import replace
from bregopt.rigorous.file.certificate import BoundCertificate

mpmath = pytest.importorskip("mpmath")
pytest.importorskip("flint")
divergences = pytest.importorskip("bregopt_check_divergences")
mp = mpmath.mp.clone()
mp.dps = 50


def entropies(hermitian):
    """The free energy of a diagonal Hamiltonian, turned by a permutation."""
    X, levels = bo.PSD(3, hermitian=hermitian), np.array([0.0, 1.0, 2.0])
    problem = bo.Problem(
        bo.Minimize(bo.inner(np.diag(levels), X) - bo.von_neumann_entr(X)), [bo.trace(X) == 1]
    )
    return problem, -mp.log(sum(mp.exp(-mp.mpf(x)) for x in levels))


def key():
    """BB84 with an error rate of 1/16, whose entropies have weights of both signs."""
    rho, q = bo.PSD(4), mp.mpf(1) / 16
    signs = np.diag([1.0, -1.0]), np.array([[0, 1.0], [1, 0]])
    rows = [bo.trace(rho) == 1, *(bo.inner((np.eye(4) - np.kron(s, s)) / 2, rho) == 1 / 16 for s in signs)]
    parts = [np.kron(np.diag(e), np.eye(2)) for e in np.eye(2)]
    problem = bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=parts)), rows)
    return problem, mp.log(2) + q * mp.log(q) + (1 - q) * mp.log(1 - q)


def relative():
    A, B = bo.PSD(2), bo.PSD(2)
    rows = [A[0, 0] == 0.5, bo.trace(A) == 1, B[0, 0] == 0.25, bo.trace(B) == 1]
    problem = bo.Problem(bo.Minimize(bo.quantum_rel_entr(A, B)), rows)
    return problem, (mp.log(2) + mp.log(mp.mpf(2) / 3)) / 2


def numbers():
    """Functions of numbers whose least values are known, with other weights."""
    p, q, x, y, z = (bo.Variable(n) for n in (4, 2, 2, 3, 1))
    cost = -bo.sum(bo.entr(p)) + 2 * bo.sum(bo.rel_entr(q, np.array([0.25, 0.75])))
    cost = (
        cost + 3 * bo.sum(bo.exp(x + 1)) - bo.sum(x) + bo.log_sum_exp(y) + bo.sum(bo.logistic(z)) - z[0] / 4
    )
    rows = [bo.sum(p) == 1, q == 0.5, x >= -5, x <= 5, y >= 1, y <= 9, z >= -9, z <= 9]
    value = -mp.log(4) + (mp.log(2) + mp.log(mp.mpf(2) / 3)) + 4 + 2 * mp.log(3) + 1 + mp.log(3)
    return bo.Problem(bo.Minimize(cost), rows), value + mp.log(mp.mpf(4) / 3) + mp.log(3) / 4


def at_entropy(maximize):
    """The least energy of states of an entropy is that of a thermal state; its bound is 1."""
    X, levels = bo.PSD(3), np.array([0.0, 1.0, 3.0])
    energy, rows = bo.inner(np.diag(levels), X), [bo.trace(X) == 1, bo.von_neumann_entr(X) >= 1]

    def thermal(beta):
        p = [mp.exp(-beta * mp.mpf(x)) for x in levels]
        return [x / sum(p) for x in p]

    def excess(beta):
        return -sum(x * mp.log(x) for x in thermal(beta)) - 1

    beta = mp.findroot(excess, -0.3 if maximize else 0.5)
    value = sum(x * p for x, p in zip(map(mp.mpf, levels), thermal(beta), strict=True))
    if maximize:  # the file has the negative
        return bo.Problem(bo.Maximize(energy), rows), -value
    return bo.Problem(bo.Minimize(energy), rows), value


def rows_of_numbers():
    """Two rows with terms, beside an objective with one: all are apart."""
    x, y, z = bo.Variable(2), bo.Variable(2, lower=-3, upper=3), bo.Variable(2, lower=0, upper=9)
    rows = [bo.log_sum_exp(x) <= 1, x >= -9, bo.sum(bo.exp(y)) <= 4]
    cost = -bo.sum(x) - bo.sum(y) - bo.sum(bo.entr(z))
    value = -2 * (1 - mp.log(2)) - 2 * mp.log(2) - 2 / mp.e
    return bo.Problem(bo.Minimize(cost), rows), value


def logarithm(hermitian, row):
    """``X = t P`` is best for ``tr P log X``, with ``t = 1``, or as the row asks for."""
    X, d = bo.PSD(3, hermitian=hermitian), np.array([1.0, 2.0, 3.0])
    P, p = np.diag(d), [mp.mpf(x) for x in d]
    if not row:
        return bo.Problem(bo.Minimize(bo.trace(X) - bo.trace_logm(X, P)), []), sum(
            x - x * mp.log(x) for x in p
        )
    t = mp.exp((2 - sum(x * mp.log(x) for x in p)) / 6)
    return bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace_logm(X, P) >= 2, bo.trace(X) <= 9]), 6 * t


CASES = {
    "entropies": lambda: entropies(False),
    "hermitian": lambda: entropies(True),
    "key": key,
    "relative": relative,
    "numbers": numbers,
    "least energy": lambda: at_entropy(False),
    "largest energy": lambda: at_entropy(True),
    "rows of numbers": rows_of_numbers,
    "logarithm": lambda: logarithm(False, False),
    "hermitian logarithm": lambda: logarithm(True, True),
}


@pytest.mark.parametrize("own", CASES.values(), ids=CASES)
def test_files_prove_both_bounds_of_closed_forms(own, tmp_path):
    path, forged, rng = tmp_path / "bounds.npz", tmp_path / "forged.npz", np.random.default_rng(0)
    problem, value = own()
    found = saved(problem.solve(), path)
    value, room = Fraction(mp.nstr(value, 45)), Fraction(1, 10**40)
    assert check.main([path]) == 0
    BoundCertificate.load(path).check()
    lower, upper = bounds(path)
    assert lower - room <= value <= upper + room
    assert upper - lower <= 1e-7
    assert found.certificate.claims[1] <= float(value) + 1e-7
    facts = check.read(path)
    for _ in range(12):
        write(forged, changed(facts, rng))
        lower, upper = bounds(forged)
        assert lower is None or lower <= value + room
        assert upper is None or upper >= value - room


def test_a_forged_point_term_or_claim_is_refused(tmp_path, capsys):
    path, forged = tmp_path / "bounds.npz", tmp_path / "forged.npz"
    problem, _ = key()
    certificate = saved(problem.solve(), path).certificate
    facts = check.read(path)
    unknown = facts["cost"][2][0][0]  # the bound on the objective

    def proves(change):
        own = copy.deepcopy(facts)
        change(own)
        write(forged, own)
        return check.main([forged]) == 0

    def below(own):
        own["upper"]["at"][unknown] -= own["upper"]["at"][-1] // 10**7
        own["claimed upper"] = float.hex(float.fromhex(own["claimed upper"]) - 1e-8)

    def weight(own):  # of a negative number
        own["terms"][1][1][0] //= 2

    def negative(own):  # an image without one of its entries on the diagonal
        own["terms"][1][3][0][2] = []

    def claim(own):
        own["claimed upper"] = float.hex(float.fromhex(own["claimed upper"]) - 1e-6)

    def kind(own):
        own["terms"][1][0] = "exponentials"

    def short(own):
        own["terms"][1][3].pop()

    def apart(own):  # a term that no row bounds
        own["terms"] = own["terms"][1:]

    assert proves(lambda own: None)
    assert not any(map(proves, (below, weight, negative, claim, kind, short, apart)))
    assert "epigraph" in capsys.readouterr().out
    # The same of the arrays that bregopt reads.
    point, u = certificate.point, certificate.point.u.copy()
    lower, upper = certificate.claims
    u[-1] = (3 * lower + upper) / 4
    replace(certificate, point=replace(point, u=u), claims=(lower, u[-1])).save(forged)
    with pytest.raises(ValueError, match="data prove the upper bound"):
        BoundCertificate.load(forged).check()
    total, first, *others = certificate.terms
    replace(certificate, terms=(total, first._replace(weights=2 * first.weights), *others)).save(forged)
    with pytest.raises(ValueError, match="data prove the upper bound"):
        BoundCertificate.load(forged).check()
    for wrong in ({"orders": (9,)}, {"orders": ()}, {"weights": np.ones(5)}, {"kind": "relative entropy"}):
        with pytest.raises((ValueError, StopIteration, RuntimeError)):
            replace(certificate, terms=(total, first._replace(**wrong), *others)).save(forged)
            BoundCertificate.load(forged)


def test_a_point_on_the_tangent_of_a_row_need_not_be_feasible(tmp_path, capsys):
    """Along a direction without trace and energy the entropy falls by the square of the step."""
    path, forged = tmp_path / "bounds.npz", tmp_path / "forged.npz"
    certificate = saved(at_entropy(False)[0].solve(), path).certificate
    for step, proven in ((0.0, True), (1e-3, False)):
        facts, t = check.read(path), check.read(path)["upper"]["at"][-1]
        for place, d in zip((0, 3, 5), (2, -3, 1), strict=True):
            facts["upper"]["at"][place] += int(step * d * t)
        write(forged, facts)
        assert (check.main([forged]) == 0) == proven
        point, D = certificate.point, np.diag([2.0, -3.0, 1.0])
        replace(certificate, point=replace(point, X=(point.X[0] + step * D,))).save(forged)
        if proven:
            BoundCertificate.load(forged).check()
        else:
            with pytest.raises(ValueError, match="data prove the upper bound inf"):
                BoundCertificate.load(forged).check()
    assert "the point is not proven in the epigraph of the terms" in capsys.readouterr().out


def test_the_terms_of_intervals_are_the_largest():
    """At 50 digits, the value at any point of an interval is below the bound."""
    rng = np.random.default_rng(2)
    exact = {
        "entropy of numbers": lambda a: a * mp.log(a),
        "relative entropy of numbers": lambda a, b: a * mp.log(a / b),
        "exponential": mp.exp,
        "logistic": lambda a: mp.log(1 + mp.exp(a)),
        "logarithm of a sum": lambda *y: mp.log(sum(map(mp.exp, y))),
    }
    balls = divergences.Balls(64)
    for kind, f in exact.items():
        size = {"relative entropy of numbers": 2, "logarithm of a sum": 3}.get(kind, 1)
        for _ in range(5):
            lo = rng.random(size)
            ends = [(x, x + w) for x, w in zip(lo, rng.random(size) / 9, strict=True)]
            found = divergences.above(
                divergences.NUMBERS[kind](*([balls.number(Fraction(x)) for x in own] for own in ends))
            )
            corners = np.stack(np.meshgrid(*ends), -1).reshape(-1, size)
            largest = max(f(*map(mp.mpf, corner)) for corner in corners)
            assert abs(mp.mpf(found.numerator) / found.denominator - largest) <= mp.mpf(10) ** -40


def term(kind, weights, orders, diagonals, *rooms):
    """Return what the checker proves of a term of diagonal matrices whose diagonals are within some rooms."""
    own = divergences.Epigraph.__new__(divergences.Epigraph)
    divergences.Balls.__init__(own, 64)
    own.P, own.ends = SimpleNamespace(one=1), lambda row: row
    rows = []
    for d, room in zip(diagonals, rooms, strict=True):
        rows += [(x - room * (i == j), x + room * (i == j)) for (i, j), x in np.ndenumerate(np.diag(d))]
    found = own.value(kind, weights, orders, [[Fraction(x) for x in row] for row in rows])
    return mp.mpf(found.numerator) / found.denominator


def test_the_terms_of_balls_of_matrices_are_the_largest():
    """The extreme points of commuting matrices are below the bounds, and near them."""
    room, signs = 2.0**-10, [np.array(s) for s in product((-1, 1), (-1, 1))]
    for d, weight in product(([0.25, 0.5], [4.0, 5.0]), (1, -1)):
        exact = [weight * sum(x * mp.log(x) for x in map(mp.mpf, np.array(d) + room * s)) for s in signs]
        assert max(exact) <= term("entropy", [weight], [2], [d], room) <= max(exact) + 20 * room
    a, b = np.array([0.25, 0.5]), np.array([0.75, 0.25])
    for first, second in ((room, 0.0), (0.0, room), (room, room)):
        pairs = [(a + first * s, b + second * t) for s in signs for t in signs]
        exact = [2 * sum(x * mp.log(mp.mpf(x) / y) for x, y in zip(*own, strict=True)) for own in pairs]
        found = term("relative entropy", [2], [2, 2], [a, b], first, second)
        assert max(exact) <= found <= max(exact) + 40 * room
    for d, wide in (([0.0, 1.0], 0.0), ([0.0625, 1.0], 0.0625), ([-0.5, 1.0], 0.0)):
        for weight in (1, -1):
            with pytest.raises(check.Unproven, match="not proven positive definite"):
                term("entropy", [weight], [2], [d], wide)
    with pytest.raises(check.Unproven, match="weight"):
        term("relative entropy", [-1], [2, 2], [a, b], room, room)
