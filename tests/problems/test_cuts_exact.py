"""Cuts are optimal by proof: exact truth by enumeration in rational numbers, in every unit."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.problems.cuts import proof as proofs
from bregopt.problems.cuts.proof import Lattice, partitions, strongest

KINDS = ("integers", "dyadic", "decimals", "decades", "reals", "reals over decades")


def weighted(rng, n, kind, signed=False):
    """Return the adjacency matrix of a random graph with weights of a kind."""
    shape = (n, n)
    decades = 10.0 ** rng.integers(-6, 7, shape)
    values = {
        "integers": rng.integers(1, 12, shape).astype(float),
        "dyadic": rng.integers(1, 100, shape) * 2.0**-20,
        "decimals": rng.integers(1, 30, shape) * 0.1,
        "decades": decades,
        "reals": rng.random(shape),
        "reals over decades": rng.random(shape) * decades,
    }[kind]
    W = np.triu(rng.random(shape) < rng.uniform(0.3, 1), 1) * values
    if signed:
        W *= rng.choice([-1, 1], shape)
    return W + W.T


def weight(W, part):
    """Return the exact weight between the parts."""
    i, j = np.nonzero(np.triu(W))
    cut = np.asarray(part)[i] != np.asarray(part)[j]
    return sum(map(Fraction, W[i[cut], j[cut]].tolist()), Fraction(0))


def best(W, k, allowed, largest):
    """Return the exact weight of the best partition."""
    n = len(W)
    every = [p for p in product(range(k), repeat=n) if p[0] == 0 and allowed(np.bincount(p, minlength=k))]
    i, j = np.nonzero(np.triu(W))
    parts = np.array(every)
    rough = (parts[:, i] != parts[:, j]) @ W[i, j]
    close = np.abs(rough - (rough.max() if largest else rough.min())) <= 1e-12 * W[i, j].__abs__().sum()
    exact = [weight(W, part) for part in parts[close]]
    return max(exact) if largest else min(exact)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")  # of relaxations over decades of weights
@pytest.mark.parametrize(("kind", "unit"), turns(KINDS, [1e-12, 1e-9, 1.0, 1e12]))
def test_small_cuts_are_optimal_in_exact_arithmetic(kind, unit):
    rng = np.random.default_rng([KINDS.index(kind), int(np.log10(unit)) + 12])
    n = int(rng.integers(4, 8))
    signed, plain = weighted(rng, n, kind, signed=True) * unit, weighted(rng, n, kind) * unit
    first = int(rng.integers(1, n))
    bound = str(rng.choice(["sdp", "triangles"]))
    answers = [
        (bo.max_cut(signed, bound=bound), signed, 2, lambda s: True, True),
        (bo.min_balanced_cut(plain, bound=bound), plain, 2, lambda s: abs(s[0] - s[1]) <= n % 2, False),
        (bo.min_balanced_cut(plain, sizes=(first, n - first)), plain, 2, lambda s: first in s, False),
        (bo.partition(plain, 3), plain, 3, lambda s: max(s) - min(s) <= 1, False),
    ]
    for found, W, k, allowed, largest in answers:
        truth = best(W, k, allowed, largest)
        assert found.optimal
        assert weight(W, found._numbers) == truth
        assert found.cut == float(truth)
        assert found.bound >= truth if largest else found.bound <= truth


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e12])
def test_decades_of_weights_are_no_reason_for_a_proof(unit):
    """A cut that loses a billionth of all weights is not optimal (seed 141 of an audit)."""
    rng = np.random.default_rng(141)
    W = np.triu(rng.random((6, 6)) < 0.6, 1) * 10.0 ** rng.integers(-6, 7, (6, 6)) * unit
    W = W + W.T
    found = bo.max_cut(W)
    assert found.optimal
    assert weight(W, found.partition) == best(W, 2, lambda s: True, True)


def test_a_bound_of_many_weights_is_rounded_away_from_the_cuts():
    """Sums of the weights in doubles are on either side of the exact ones."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        B = rng.random((6, 7)) * 10.0 ** rng.integers(-6, 7, (6, 7))
        W = np.block([[np.zeros((6, 6)), B], [B.T, np.zeros((7, 7))]])
        truth = sum(map(Fraction, B.ravel().tolist()))
        found = bo.max_cut(W, bound=False)
        assert found.optimal
        assert truth <= found.bound <= np.nextafter(float(truth), np.inf)


@pytest.mark.parametrize("bound", ["sdp", "triangles"])
def test_a_bound_that_proves_nothing_has_all_rounding_errors(bound, monkeypatch):
    """Whatever certificates say, the answer's bound is the rigorous one."""
    rng = np.random.default_rng(2)
    W = np.triu(rng.random((24, 24)) < 0.4, 1) * rng.random((24, 24))
    plain = bo.max_cut(W + W.T, bound=bound)
    assert not plain.optimal
    add = proofs.Proof.add
    monkeypatch.setattr(proofs.Proof, "add", lambda proof, value: add(proof, value * (1 - 1e-6)))
    assert bo.max_cut(W + W.T, bound=bound).bound == pytest.approx(plain.bound, rel=1e-9)


def test_the_last_round_of_triangles_keeps_the_proof():
    """The round that proves a partition ends the rounds. The first graph has an odd number of vertices."""
    networkx = pytest.importorskip("networkx")
    novel, club = networkx.les_miserables_graph(), networkx.karate_club_graph()
    novel = novel.subgraph(sorted(novel, key=lambda name: (-novel.degree(name), name))[:31])
    assert not bo.min_balanced_cut(novel, weights="weight").optimal
    assert bo.min_balanced_cut(novel, weights="weight", bound="triangles").optimal
    assert bo.partition(club, 3, sizes=(16, 12, 6), bound="triangles").optimal


@pytest.mark.parametrize("n", [301, 501])
def test_relaxations_end_where_their_multipliers_prove_the_cut(n):
    """Of an odd cycle the bound passes the next integer late: it is 300.992 and 500.997."""
    cycle = np.roll(np.eye(n), 1, axis=1)
    found = bo.max_cut(cycle + cycle.T)
    assert found.optimal
    assert found.cut <= found.bound < n


@pytest.mark.parametrize(
    ("n", "bound"), first(2, [(n, bound) for n in (202, 250) for bound in ("sdp", "triangles")])
)
def test_a_definite_slack_counts_in_the_proof(n, bound):
    """Two dense parts, two edges between them: at the first steps ``C - A*(y)`` is far from singular."""
    rng = np.random.default_rng(0)
    W = np.triu(rng.random((n, n)) < 0.5, 1) * np.kron(np.eye(2), np.ones((n // 2, n // 2)))
    W[0, n - 1] = W[3, n - 4] = 1
    found = bo.min_balanced_cut(W + W.T, bound=bound)
    assert (found.cut, found.optimal) == (2, True)
    assert 1 < found.bound <= 2


def test_rows_whose_sum_is_an_eigenvector_do_not_diverge():
    """The norm of the triangle rows of this path was taken for half of its size."""
    found = bo.min_balanced_cut(
        [[0, 38, 0, 55], [38, 0, 70, 0], [0, 70, 0, 0], [55, 0, 0, 0]], sizes=(3, 1), bound="triangles"
    )
    assert (found.cut, found.bound, found.optimal) == (55, 55, True)


def test_large_graphs_with_rounded_bounds_are_not_proven():
    """Enumeration is too long, and weights without a unit leave the bound above every cut."""
    rng = np.random.default_rng(0)
    cycle = np.roll(np.eye(25), 1, axis=1)
    W = (cycle + cycle.T).astype(bool) * (1 + rng.random((25, 25)))
    W = np.triu(W) + np.triu(W).T
    found = bo.max_cut(W, bound="sdp")
    assert found.cut == pytest.approx(found.bound, rel=5e-2)
    assert not found.optimal


@pytest.mark.parametrize("unit", [1e-12, 0.1, 1.0, 0.37, 1e12])
def test_bounds_prove_multiples_of_any_unit(unit):
    """Of an odd cycle the relaxation's bound is below the next multiple of the unit."""
    n = 21
    cycle = np.roll(np.eye(n), 1, axis=1)
    W = (cycle + cycle.T) * 3 * unit
    found = bo.max_cut(W)
    assert found.optimal
    assert found.cut == pytest.approx((n - 1) * 3 * unit)
    assert found.bound > found.cut * (1 + 1e-4)  # so it is the bound that proves it
    assert not bo.max_cut(W + unit * 1e-8 * (W > 0) * np.add.outer(np.arange(n), np.arange(n))).optimal


def test_bipartite_graphs_of_any_weights_need_no_relaxation():
    rng = np.random.default_rng(3)
    B = rng.random((12, 15))
    W = np.block([[np.zeros((12, 12)), B], [B.T, np.zeros((15, 15))]])
    assert bo.max_cut(W).optimal
    assert bo.max_cut(W, bound=False).optimal
    apart = np.block([[np.ones((9, 9)), np.zeros((9, 9))], [np.zeros((9, 9)), np.ones((9, 9))]])
    np.fill_diagonal(apart, 0)
    found = bo.min_balanced_cut(apart * 0.1234567891234567)
    assert found.cut == 0
    assert found.optimal


def test_a_certificate_alone_proves_nothing(monkeypatch):
    """The bound that counts is the rigorous one."""
    cycle = np.roll(np.eye(21), 1, axis=1)
    monkeypatch.setattr(proofs, "_rigorous_bound", lambda problem, answer: np.inf)
    assert not bo.max_cut(cycle + cycle.T).optimal


@pytest.mark.parametrize(
    ("weights", "unit"),
    [
        ([3.0, 6.0, 9.0], 3),
        ([0.1, 0.3, 0.1 + 0.2], Fraction(1, 10)),
        ([0.75, 2.5], Fraction(1, 4)),
        ([3e12, 5e12], 10**12),
        ([1.0, 1e12 + 1], 1),
        ([1e-9 * k for k in (4, 6, 10)], Fraction(2, 10**9)),
        ([2.0**-1000, 3 * 2.0**-1000], Fraction(1, 2**1000)),
    ],
)
def test_lattices(weights, unit):
    lattice = Lattice.of(np.array(weights))
    assert abs(lattice.unit / unit - 1) < Fraction(1, 2**49)
    assert 4 * lattice.distance <= lattice.unit
    whole = sum(map(Fraction, weights))
    assert abs(whole - round(whole / lattice.unit) * lattice.unit) <= lattice.distance


def test_weights_without_a_unit_have_none():
    rng = np.random.default_rng(0)
    lattice = Lattice.of(rng.random(30) * 10.0 ** rng.integers(-6, 7, 30))
    assert lattice.unit == 0
    assert not lattice.proves(1.0, 1.0, largest=True)


def test_a_lattice_proves_below_the_next_multiple_only():
    lattice = Lattice.of(np.array([2.0, 4.0]))
    assert lattice.proves(np.nextafter(12.0, 0), 10.0, largest=True)
    assert not lattice.proves(12.0, 10.0, largest=True)
    assert lattice.proves(np.nextafter(8.0, 9), 10.0, largest=False)
    assert not lattice.proves(8.0, 10.0, largest=False)


def test_partitions_are_enumerated_once():
    for sizes, count in (
        ([(2, 2, 2)], 15),  # 6! / (2!^3 3!)
        ([(1, 2, 3), (3, 2, 1)], 60),
        ([(2, 2, 2), (1, 2, 3)], 75),
        ([(own, 6 - own) for own in range(7)], 32),
    ):
        parts = partitions(sizes)
        assert len({tuple(part) for part in parts.tolist()}) == len(parts) == count
        assert {tuple(sorted(np.bincount(part, minlength=len(sizes[0])))) for part in parts} == {
            tuple(sorted(each)) for each in sizes
        }
        first = [[part.tolist().index(p) for p in np.unique(part)] for part in parts]
        assert all(order == sorted(order) for order in first)
    assert partitions([(first, 40 - first) for first in range(41)]) is None


def test_the_strongest_cut_is_compared_exactly():
    W = np.zeros((4, 4))  # an isolated vertex in the third part keeps the numbers of the others
    for (i, j), weight in {(0, 1): 1.0, (1, 2): 2.0**-60, (0, 2): 2.0**-61}.items():
        W[i, j] = W[j, i] = weight
    parts = np.array(
        [[0, 1, 1, 2], [0, 1, 0, 2], [0, 1, 2, 2], [0, 0, 0, 2]]
    )  # both, one, and all of the small
    assert strongest(parts, W, largest=True) == 2
    assert strongest(parts[:2], W, largest=True) == 1
    assert strongest(parts[:2], W, largest=False) == 0


@pytest.mark.parametrize(("seed", "side"), first(1, [(0, 4), *((seed, 6) for seed in range(6))]))
def test_a_bound_never_makes_a_cut_worse(seed, side):
    """On weighted tori, where the relaxation proves nothing and its roundings mislead a search."""
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    ends = np.array([[at, np.roll(at, 1, axis)] for axis in (0, 1)]).transpose(0, 2, 3, 1).reshape(-1, 2)
    weights = rng.integers(-100_000, 100_000, len(ends)).astype(float)
    plain = bo.max_cut(ends, weights, bound=False, seed=seed)
    for kind in ("sdp", "triangles"):
        assert bo.max_cut(ends, weights, bound=kind, seed=seed).cut >= plain.cut
    for options in ({}, {"imbalance": 0.2}):
        plain = bo.min_balanced_cut(ends, abs(weights), bound=False, seed=seed, **options)
        assert bo.min_balanced_cut(ends, abs(weights), seed=seed, **options).cut <= plain.cut
    plain = bo.partition(ends, 3, weights=abs(weights), bound=False, seed=seed)
    assert bo.partition(ends, 3, weights=abs(weights), seed=seed).cut <= plain.cut
