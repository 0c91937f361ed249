from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.forecasters.adversaries import regimes
from tests.forecasters.oracle_harmonic import announced, stored_in_floats
from tests.strategies import one_hot, play, spaces, streams
from treecal._typing import Array
from treecal.exceptions import OutcomeError
from treecal.forecasters import _harmonic
from treecal.forecasters._harmonic import _STEP, _rates, harmonic_error, odd_reciprocals
from treecal.state import dumps, loads


def test_it_is_the_papers() -> None:
    outcomes = one_hot(3, 30, np.random.default_rng(0))
    rational = [tuple(Fraction(int(entry)) for entry in y) for y in outcomes]
    forecasts, _ = play(tc.Harmonic(tc.Simplex(3)), outcomes)
    np.testing.assert_allclose(stored_in_floats(outcomes)[:-1], forecasts[-1].points, rtol=0, atol=4e-15)
    assert np.array_equal(forecasts[0].points, [[1 / 3] * 3])
    for t, x in enumerate(forecasts[1:], start=1):
        points, weights = zip(*announced(rational, t), strict=True)
        np.testing.assert_allclose(x.points, np.array(points, dtype=float), rtol=0, atol=2e-15)
        np.testing.assert_allclose(x.weights, np.array(weights, dtype=float), rtol=2e-15)
        assert x.nodes is not None
        assert x.nodes.tolist() == [[0, s] for s in range(t)]


def points_of(forecaster: tc.Harmonic, outcomes: Array) -> Array:
    for y in outcomes:
        forecaster.update(y)
    return forecaster.predict().points


@pytest.mark.parametrize("kind", ["random", "constant", "switch", "once"])
def test_fast_is_exact(kind: str) -> None:
    """At 20,000 rounds; a constant stream is where rounding errors all point one way."""
    rounds, rng = 20_000, np.random.default_rng(1)
    outcomes = {
        "random": rng.dirichlet(np.ones(2), rounds),
        "constant": np.tile([0.3, 0.7], (rounds, 1)),
        "switch": np.eye(2)[np.arange(rounds) // (rounds // 2)],
        "once": np.eye(2)[np.minimum(np.arange(rounds), 1)],  # a class that is seen in the first round only
    }[kind]
    fast, exact = points_of(tc.Harmonic(tc.Simplex(2)), outcomes), stored_in_floats(outcomes)
    assert (np.abs(fast - exact) <= 1e-12 * exact).all()


@pytest.mark.parametrize("rounds", [20_000, pytest.param(100_000, marks=pytest.mark.heavy)])
def test_fast_is_exact_after_many_rounds(rounds: int) -> None:
    for outcomes in (regimes(2, rounds, np.random.default_rng(2)), np.tile([0.3, 0.7], (rounds, 1))):
        fast = points_of(tc.Harmonic(tc.Simplex(2)), outcomes)
        for t in (1, 10, 1000, rounds // 3, rounds - 7, rounds - 1):
            lags = 1 / (2 * np.arange(t, -1, -1) + 1)
            exact = np.array([math.fsum(lags * column) for column in outcomes[: t + 1].T]) / math.fsum(lags)
            assert (np.abs(fast[t] - exact) <= 1e-12 * exact).all()


def test_the_rule_is_right_at_every_lag() -> None:
    """Of the infinite sum: a relative 2Σ|Γ(1 + 2πin/h)|, where |Γ(1 + iy)|² = πy / sinh(πy)."""
    y = 2 * math.pi / _STEP
    assert 2.001 * math.sqrt(math.pi * y / math.sinh(math.pi * y)) < 2e-16
    rounds, count = 10**14, 1
    while _rates(count).enough < rounds:
        count += 1
    fade, share, _ = _rates(count)
    with np.errstate(divide="ignore"):
        rate = np.log1p(-fade[:, 0])
    for lag in (0, 1, 2, 3, 10, 12_345, 10**9, rounds - 1):
        faded = np.exp(lag * rate) if lag else np.ones_like(rate)
        weight = math.fsum(share[:, 0] * faded)
        assert weight * (2 * lag + 1) == pytest.approx(1, abs=3e-15)


def test_rates_are_added_as_rounds_go_by() -> None:
    f, counts = tc.Harmonic(tc.Simplex(1)), []
    for _ in range(3000):
        f.update(np.ones(1))
        counts.append(len(f.get_state()["sums"]))
    assert counts[0] < counts[-1] < counts[0] + math.log(3000) / _STEP + 2
    assert counts[-1] <= 4 * math.log(3000) + 170


def test_an_interrupted_round_changes_nothing() -> None:
    """The state is replaced by one assignment, so that a round is learned whole or not at all."""
    f, plain = tc.Harmonic(tc.Simplex(2)), tc.Harmonic(tc.Simplex(2))
    for each in (f, plain):
        each.update([1, 0])
    before = dumps(f)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_harmonic, "_appended", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f.update([0, 1])
    assert dumps(f) == before
    for each in (f, plain):
        each.update([0, 1])
    assert dumps(f) == dumps(plain)


def interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_draws_follow_the_weights() -> None:
    from scipy.stats import chisquare

    rng, f = np.random.default_rng(4), tc.Harmonic(tc.Simplex(2))
    x = tc.Harmonic(tc.Simplex(2)).predict()
    assert np.array_equal(x.sample(rng), [0.5, 0.5])
    for y in rng.dirichlet(np.ones(2), 60):
        f.update(y)
    x = f.predict()
    index = {p.tobytes(): s for s, p in enumerate(x.points)}
    assert len(index) == 60
    count = 200_000
    drawn = np.bincount([index[x.sample(rng).tobytes()] for _ in range(count)], minlength=60)
    assert chisquare(drawn, count * x.weights).pvalue > 1e-3
    deviation = (drawn - count * x.weights) / np.sqrt(count * x.weights * (1 - x.weights))
    assert np.abs(deviation[-4:]).max() < 3.5  # the short lags, where inversion alone would be off by 4 %
    one = tc.Harmonic(tc.Simplex(2))
    one.update([1, 0])
    assert np.array_equal(one.predict().sample(rng), [1.0, 0.0])


def test_a_forecast_is_a_view_and_behaves_as_any_other() -> None:
    f = tc.Harmonic(tc.Simplex(3))
    for y in streams(tc.Simplex(3), 20, 0):
        f.update(y)
    x, later = f.predict(), tc.Harmonic(tc.Simplex(3))
    later.set_state(f.get_state())
    f.update([0, 0, 1])
    assert np.shares_memory(x.points, f.predict().points)
    assert x == later.predict()
    plain = tc.Forecast(x.points, weights=x.weights, nodes=x.nodes, space=f.space)
    assert x == plain
    assert plain == x
    assert len(x) == 20
    assert np.array_equal(x.mean, plain.mean)
    assert repr(x) == repr(plain)
    with pytest.raises(AttributeError, match="nothing"):
        x.nothing  # type: ignore[attr-defined] # noqa: B018


def test_snapshots_resume_where_a_rate_is_due() -> None:
    outcomes = streams(tc.Simplex(2), 90, 3)
    for stop in range(60, 75):
        f = tc.Harmonic(tc.Simplex(2))
        points_of(f, outcomes[:stop])
        again = loads(dumps(f))
        assert np.array_equal(points_of(f, outcomes[stop:]), points_of(again, outcomes[stop:]))


@settings(max_examples=40, deadline=None)
@given(spaces(3), st.integers(1, 70), st.integers(0, 10**6))
def test_fft_error_is_the_ledgers(space: tc.ConvexSet, rounds: int, seed: int) -> None:
    outcomes = streams(space, rounds, seed)
    start = outcomes[-1]
    _, ledger = play(tc.Harmonic(space, start=start), outcomes)
    for norm in (tc.l1, tc.l2, tc.linf):
        error = harmonic_error(outcomes, space=space, norm=norm, start=start)
        assert error == pytest.approx(ledger.error(norm, per_node=True), rel=1e-9, abs=1e-10)
        assert harmonic_error(outcomes, space=space, norm=norm, start=start, total=True) == pytest.approx(
            rounds * error
        )


def test_fft_error_is_the_ledgers_over_a_longer_run() -> None:
    outcomes = regimes(3, 2000, np.random.default_rng(5), every=300)
    _, ledger = play(tc.Harmonic(tc.Simplex(3)), outcomes)
    for norm in ("l1", "l2"):
        assert abs(harmonic_error(outcomes, space=tc.Simplex(3), norm=norm) - ledger.error(norm, per_node=True)) < 1e-9


@pytest.mark.heavy
def test_fft_error_is_that_of_the_sums_at_length() -> None:
    """At 20,000 rounds, where a ledger would hold 2·10^8 entries: its sums, point by point."""
    rounds, space = 20_000, tc.Simplex(2)
    outcomes = regimes(2, rounds, np.random.default_rng(6))
    points = stored_in_floats(outcomes)
    lags = odd_reciprocals(rounds)
    totals = np.cumsum(lags)
    error = float(tc.l1(outcomes[0] - space.centre))
    for s in range(rounds - 1):
        weights = lags[: rounds - 1 - s] / totals[s : rounds - 1]
        error += float(tc.l1(weights @ (outcomes[s + 1 :] - points[s])))
    assert abs(harmonic_error(outcomes, space=space) - error / rounds) < 1e-9


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(OutcomeError, match=r"outcome at round 2 lies outside Simplex\(2\)"):
        harmonic_error([[1.0, 0.0], [1.0, 1.0]], space=tc.Simplex(2))
    with pytest.raises(OutcomeError, match=r"shape \(0, 2\)"):
        harmonic_error(np.zeros((0, 2)), space=tc.Simplex(2))
