"""Outcomes as points, class indices and names; forecasts within a tolerance of the simplex; one by one and many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry._outcomes import read_forecast, read_outcome, read_point
from treecal.geometry._rows import read_forecast_rows, read_outcome_rows

SKY = tc.Simplex(classes=["rain", "snow", "sun"])


@pytest.mark.parametrize(
    "outcome", [2, "sun", np.int32(2), np.uint8(2), np.array(2), np.str_("sun"), np.array("sun"), [0, 0, 1], (0, 0, 1)]
)
def test_a_class_is_its_unit_vector_everywhere(outcome: Any) -> None:
    f, b, ledger = tc.TreeCal(SKY, arity=2), tc.Recalibrator(SKY), tc.Ledger(SKY)
    f.update(outcome)
    again = tc.TreeCal(SKY, arity=2)
    again.update(np.array([0.0, 0.0, 1.0]))
    assert f.predict() == again.predict()
    b.predict([0.2, 0.3, 0.5])
    b.update(outcome)
    ledger.record([0.2, 0.3, 0.5], outcome)
    assert ledger.exact().outcomes.tolist() == [[0.0, 0.0, 1.0]]
    guarded = tc.Guarded(SKY)
    guarded.update(outcome)
    assert guarded.rounds == 1


def test_a_torch_scalar_is_an_index() -> None:
    torch = pytest.importorskip("torch")
    assert read_outcome(SKY, torch.tensor(1), 1).tolist() == [0, 1, 0]
    assert read_outcome(tc.Simplex(2), torch.tensor(True), 1).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("space", "outcome", "message"),
    [
        (SKY, "ran", r"(?s)round 7 is 'ran', expected one of rain, snow, sun.*did you mean 'rain'\?"),
        (SKY, "RAIN ", r"(?s)is 'RAIN '.*did you mean 'rain'\?"),
        (SKY, "quartz", r"is 'quartz', expected one of rain, snow, sun\.$"),
        (SKY, 3, "round 7 is the class 3, expected 0 to 2"),
        (SKY, -1, "is the class -1, expected 0 to 2"),
        (SKY, True, "(?s)is True, expected a class.*classes 1 and 0 of Simplex"),
        (tc.Simplex(classes=["yes", "no"]), True, "is True, expected a class"),
        (tc.Simplex(3), np.False_, "is False, expected a class"),
        (tc.Simplex(3), "rain", r"(?s)is 'rain', and the classes of Simplex\(3\) have no names.*Simplex\(classes="),
        (SKY, 2.0, "(?s)is the scalar .*2.0.*pass its index as an integer: 2"),
        (SKY, np.nan, "is the scalar"),
        (SKY, None, "is None, expected 3 real numbers"),
        (SKY, b"rain", "is b'rain'"),
        (SKY, np.ma.masked, "has masked entries"),
        (SKY, ["rain"], "has shape"),
        (tc.Simplex(1), 1, r"(?s)is the class 1, expected 0 to 0.*\[1\.0\]"),
        (tc.Simplex(1), True, "is True"),
        (tc.Simplex(classes=["1", "0"]), 1, "(?s)is the integer 1, and '1' is the name of class 0.*pass the name: '1'"),
        (tc.Simplex(classes=["3", "5"]), 5, "(?s)'5' is the name of class 1"),
        (tc.Box(0, 1, dim=2), "rain", "is 'rain', expected 2 real numbers"),
        (tc.Product(tc.Simplex(2), tc.Simplex(2)), 1, "is the scalar"),
    ],
)
def test_what_is_no_class_is_refused_and_nothing_learned(space: tc.ConvexSet, outcome: Any, message: str) -> None:
    with pytest.raises(OutcomeError, match=message):
        read_outcome(space, outcome, 7)
    f, ledger = tc.TreeCal(space, arity=2), tc.Ledger(space)
    for act in (f.update, lambda y: ledger.record(space.centre, y), lambda y: ledger.record_many([space.centre], [y])):
        with pytest.raises(OutcomeError):
            act(outcome)
    assert f.rounds == ledger.rounds == 0


def test_one_class_has_the_index_0_and_the_point_1() -> None:
    one = tc.Simplex(1)
    assert read_outcome(one, 0, 1).tolist() == read_outcome(one, [1], 1).tolist() == [1.0]
    assert read_outcome(tc.Simplex(2), True, 1).tolist() == [0.0, 1.0]
    assert read_outcome(tc.Simplex(classes=["0", "1"]), False, 1).tolist() == [1.0, 0.0]


def test_a_bank_takes_names() -> None:
    banks = [tc.Bank(tc.TreeCal(SKY, arity=2), streams=3) for _ in range(3)]
    ways: list[Any] = [["rain", "sun", "snow"], [0, 2, 1], np.eye(3)[[0, 2, 1]]]
    for bank, outcomes in zip(banks, ways, strict=True):
        bank.update([0, 1, 2], outcomes)
    assert all(np.array_equal(bank.predict([0, 1, 2]).points, banks[0].predict([0, 1, 2]).points) for bank in banks)
    with pytest.raises(OutcomeError, match=r"(?s)in row 1 is 'sn', .*snow"):
        banks[0].update([0, 1], ["sun", "sn"])
    with pytest.raises(OutcomeError, match="in row 1 is the class 3, expected 0 to 2"):
        banks[0].update([0, 1], [0, 3])


def test_integers_that_were_read_from_a_file_are_indices_whatever_the_names() -> None:
    """`treecal replay` passes classes as indices, also where names are numbers."""
    run = tc.replay(np.array([0, 1, 1]), tc.Simplex(classes=["1", "0"]), arity=2)
    assert run.rounds == 3
    with pytest.raises(OutcomeError, match="round 2 is the integer 1, and '1' is the name"):
        read_outcome_rows(tc.Simplex(classes=["1", "2", "0"]), np.array([1, 1]), before=1)


def refused(read: Any, *args: Any, **given: Any) -> str | None:
    """Return why a value is refused, if it is."""
    try:
        read(*args, **given)
    except tc.TreeCalError as error:
        return str(error)
    return None


soft = st.lists(st.floats(0.0, 1.0, width=32), min_size=3, max_size=3).filter(lambda p: sum(p) > 0.1)


@given(soft)
def test_a_float32_forecast_is_renormalised_and_a_valid_one_untouched(entries: list[float]) -> None:
    p = np.array(entries) / sum(entries)
    own = read_forecast(SKY, p, 1)
    assert np.array_equal(own, p)
    assert not np.shares_memory(own, p)
    single = p.astype(np.float32)
    read = read_forecast(SKY, single, 1)
    assert SKY.contains(read, tol=1e-15 * 3)[()] or np.array_equal(read, single.astype(np.float64))
    assert np.abs(read - p).max() < 3e-7
    assert np.array_equal(read_forecast_rows(SKY, single[None])[0], read)
    assert np.array_equal(read_forecast_rows(SKY, p[None])[0], p)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1e-3, 0.0]), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_many_forecasts_are_read_as_one_by_one(seed: int, tolerance: float, dim: int) -> None:
    """Also right at the edges of both tolerances, where sums are rounded to either side."""
    rng, space = np.random.default_rng(seed), tc.Simplex(dim)
    rows = rng.dirichlet(np.ones(dim), 30)
    scale = 1 + rng.choice([0, 1e-9, -1e-9, tolerance, -tolerance, 1e-7, 5e-4], 30) * rng.choice([1, 1 - 1e-7, 0.5], 30)
    rows *= scale[:, None]
    rows[:5] -= rng.choice([1e-10, 1e-7, 1e-4]) * (rng.random((5, dim)) < 0.3)
    kept = []
    for k, row in enumerate(rows):
        refusal = refused(read_forecast, space, row, k + 1, tolerance)
        if refusal is not None:
            assert refused(read_forecast_rows, space, rows, tolerance=tolerance) == refusal
            rows = rows[:k]
            break
        kept.append(read_forecast(space, row, k + 1, tolerance))
    assert np.array_equal(read_forecast_rows(space, rows, tolerance=tolerance), np.array(kept).reshape(-1, dim))
    assert all(space.admits(row) for row in kept)


def test_a_forecast_too_far_away_says_by_how_much() -> None:
    with pytest.raises(ForecastError, match=r"(?s)round 4 lies outside .* by 0.02: entries sum to 1.02, expected 1 "):
        read_forecast(SKY, [0.51, 0.3, 0.21], 4)
    with pytest.raises(ForecastError, match=r"if they were rounded, tolerance=0.001 accepts"):
        read_forecast(SKY, [0.501, 0.3, 0.2], 4)
    assert read_forecast(SKY, [0.501, 0.3, 0.2], 4, 0.01).sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(ForecastError, match=r"by 0.4: entry 0 is -0.2, expected 0 or more, within 1"):
        read_forecast(SKY, [-0.2, 0.6, 0.6], 4)
    with pytest.raises(ForecastError, match="predict_proba, not predict"):
        read_forecast(SKY, 2, 1)
    with pytest.raises(ForecastError, match="predict_proba, not predict"):
        tc.Ledger(SKY).record("rain", "rain")
    with pytest.raises(ForecastError, match="holds nan at entry 1"):
        read_forecast(SKY, [0.5, np.nan, 0.5], 1)
    assert read_forecast(SKY, [-1e-7, 0.5, 0.5], 1).tolist() == [0.0, 0.5, 0.5]
    with pytest.raises(OutcomeError, match=r"(?s)outside Simplex.*entries sum to 1.0001, expected 1 within 1e-09"):
        read_outcome(SKY, [0.5001, 0.3, 0.2], 1)  # outcomes are not rounded
    for tolerance in (-1e-9, 0.2, np.nan, True, "1e-6"):
        with pytest.raises(ParameterError, match="tolerance is"):
            tc.Ledger(SKY, tolerance=tolerance)  # type: ignore[arg-type]


def test_a_product_renormalises_its_simplices_only() -> None:
    space = tc.Product(tc.Simplex(2), tc.Box(0, 1, dim=1), tc.Simplex(2))
    read = read_forecast(space, [0.4999999, 0.4999999, 0.7, 0.25, 0.75], 1)
    assert read.tolist() == [0.5, 0.5, 0.7, 0.25, 0.75]
    with pytest.raises(ForecastError, match="part 1 lies outside"):
        read_forecast(space, [0.4999999, 0.4999999, 1.0000001, 0.25, 0.75], 1)
    rows = [[0.4999999, 0.4999999, 0.7, 0.25, 0.75]] * 2
    assert read_forecast_rows(space, rows).tolist() == [read.tolist()] * 2


def test_a_dictionary_gives_the_probability_of_each_class_by_name() -> None:
    ledger = tc.Ledger(SKY)
    ledger.record({"sun": 0.5, "rain": 0.25, "snow": 0.25}, "sun")
    assert ledger.exact().forecasts.tolist() == [[0.25, 0.25, 0.5]]
    with pytest.raises(ForecastError, match="has entries for sun, rain, expected rain, snow, sun"):
        ledger.record({"sun": 0.5, "rain": 0.5}, "sun")


mixed = st.one_of(
    st.integers(-1, 3),
    st.sampled_from(["rain", "sun", "hail"]),
    st.booleans(),
    st.sampled_from([[1, 0, 0], [0.5, 0.5, 0]]),
)


@given(st.lists(mixed, max_size=6), st.sampled_from([SKY, tc.Simplex(3), tc.Simplex(2)]), st.booleans())
def test_many_outcomes_are_read_as_one_by_one(values: list[Any], space: tc.Simplex, as_array: bool) -> None:
    given: Any = values
    if as_array and values and len({type(v) for v in values}) == 1:
        given = np.array(values)
    refusals = [refused(read_outcome, space, value, k + 1) for k, value in enumerate(values)]
    if any(refusals):
        many = refused(read_outcome_rows, space, given) or ""
        assert many == next(filter(None, refusals)) or many.startswith("outcomes from round 1 on are")
        return
    expected = [read_outcome(space, value, k + 1) for k, value in enumerate(values)]
    assert np.array_equal(read_outcome_rows(space, given), np.array(expected).reshape(-1, space.dim))


def test_a_point_is_no_class_for_those_who_read_points() -> None:
    with pytest.raises(OutcomeError, match="is the scalar"):
        read_point(SKY, 1, 1)
