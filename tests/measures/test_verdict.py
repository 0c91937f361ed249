"""The verdict: a table of hard cases, how often it blames the innocent, and what follows from bins alone."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy.stats import binom

from tests.measures.worlds import draw_classes, literal_square, world
from treecal._typing import Array, Integers
from treecal.correctors import method_of
from treecal.measures import Bins, Verdict, bin_of, bin_rows, debiased_ece, ece
from treecal.measures._reliability import chance_of, interval_of, mean_gap, together


def bins_of(p: Array, hit: Any, bins: int = 10) -> Bins:
    at = bin_of(p, bins).astype(int)
    n = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore"):
        return Bins(np.bincount(at, p, bins) / n, n, np.bincount(at, np.asarray(hit, float), bins) / n)


def verdict_of(P: Array, y: Integers, names: tuple[str, ...] | None = None) -> Verdict:
    names = names or tuple(map(str, range(P.shape[1])))
    each = {name: bins_of(P[:, k], y == k) for k, name in enumerate(names)}
    return Verdict(bins_of(P.max(axis=1), P.argmax(axis=1) == y), each)


def constant(p: float, came: float, rows: int) -> tuple[Array, Integers]:
    """Always the same forecast of class 1, which comes as often as told."""
    y = np.zeros(rows, np.int64)
    y[: round(came * rows)] = 1
    return np.tile([1 - p, p], (rows, 1)), y


def drawn(d: int, rows: int, seed: int = 0, **how: float) -> tuple[Array, Integers]:
    P, y = world(d, **how)(rows, np.random.default_rng(seed))
    return P, y


HARD = {
    "a fraud model that always says 0 % at a rate of 4 %": (constant(0.0, 0.04, 2000), "far off"),
    "always 4 %, and it never happens": (constant(0.04, 0.0, 2000), "far off"),
    "4 % said, 3.7 % came": (constant(0.04, 0.037, 100_000), "nearly calibrated"),
    "a log that is right to the last row": (constant(0.25, 0.25, 4000), "calibrated"),
    "always certain, always right": (constant(0.0, 0.0, 2000), "calibrated"),
    "so rare that nothing came, as it should be": (constant(1e-7, 0.0, 1000), "cannot tell"),
    "one row": (constant(0.3, 0.0, 1), "cannot tell"),
    "twenty rows of a coin": (constant(0.5, 0.6, 20), "cannot tell"),
    "a fair coin called 52 %, seldom": (constant(0.52, 0.5, 500), "calibrated"),
    "a fair coin called 52 %, often": (constant(0.52, 0.5, 100_000), "nearly calibrated"),
    "a fair coin called 60 %": (constant(0.6, 0.5, 2000), "somewhat off"),
    "a fair coin called 80 %": (constant(0.8, 0.5, 2000), "far off"),
    "90 % said, 95 % came": (constant(0.9, 0.95, 5000), "far off"),
    "right, few rows of many classes": (drawn(10, 100), "cannot tell"),
    "right, many rows of many classes": (drawn(10, 20_000), "calibrated"),
    "right, a million rows": (drawn(2, 1_000_000), "calibrated"),
    "temperature 1.1": (drawn(3, 20_000, sharp=1.1), "nearly calibrated"),
    "temperature 1.25": (drawn(3, 5000, sharp=1.25), "somewhat off"),
    "temperature 2": (drawn(3, 2000, sharp=2.0), "far off"),
    "one class of ten shifted": (drawn(10, 5000, shift=0.7), "somewhat off"),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_cases(name: str) -> None:
    (P, y), level = HARD[name]
    verdict = verdict_of(P, y)
    assert verdict.level == level
    text = " ".join(verdict.sentences)
    assert "by 0.000" not in text
    assert "nan" not in text
    assert verdict.advice.endswith(".")


@pytest.mark.parametrize("d", [2, 3, 10])
def test_who_is_right_is_seldom_blamed(d: int) -> None:
    rng = np.random.default_rng(d)
    draw = world(d)
    blamed = sum(verdict_of(*draw(800, rng)).p_value < 0.05 for _ in range(150))
    assert blamed <= 16  # of 150 at 5 %, more than 16 happen once in a thousand


@given(rows=st.integers(1, 10**6), expected=st.floats(-9, 1.5).map(lambda power: 10**power))
@example(rows=1000, expected=1e-4)  # nothing comes, as it should be
@example(rows=10_000, expected=0.5)
@settings(deadline=None, max_examples=60)
def test_who_is_right_about_what_is_rare_is_seldom_blamed(rows: int, expected: float) -> None:
    """Exactly: the probabilities of all numbers of outcomes for which a right forecast is called off."""
    p = min(expected / rows, 0.5)
    came = np.arange(min(rows, 100) + 1)
    chances = binom.pmf(came, rows, p)
    blamed = [
        c
        for k, c in zip(came.tolist(), chances.tolist(), strict=True)
        if c > 1e-9 and constant_verdict(p, k, rows).p_value < 0.05
    ]
    assert math.fsum(blamed) <= 0.05


def constant_verdict(p: float, came: int, rows: int) -> Verdict:
    rare, rest = (
        Bins(np.array([q]), np.array([rows]), np.array([n / rows])) for q, n in ((p, came), (1 - p, rows - came))
    )
    return Verdict(rest, {"0": rest, "1": rare})


@pytest.mark.parametrize(
    ("d", "how", "words"),
    [
        (2, {"sharp": 2.0}, ("Too sure: a temperature of about 1.", "AutoCorrector")),
        (3, {"sharp": 0.5}, ("temperature of about 0.5", "AutoCorrector")),
        (3, {"shift": 0.7}, ("Base rates", "most that of 0", "AutoCorrector")),
        (10, {"shift": 0.7}, ("Only 0 (", "AutoCorrector")),
        (2, {"sharp": 1.5, "shift": 0.7}, ("Base rates", "temperature of about 1.", "AutoCorrector")),
    ],
)
def test_advice_names_what_was_done_to_the_forecasts(d: int, how: Any, words: tuple[str, ...]) -> None:
    advice = verdict_of(*drawn(d, 5000, **how)).advice
    for word in words:
        assert word in advice


def test_advice_is_data_and_worded_where_it_is_read() -> None:
    verdict = verdict_of(*drawn(3, 5000, sharp=2.0))
    assert verdict.advised.methods == ("AutoCorrector",)
    assert verdict.advice == f"{verdict.advised.found} Use tc.AutoCorrector."
    assert verdict.advised.text(method_of) == f"{verdict.advised.found} Use auto."
    assert verdict_of(*drawn(3, 100)).advised.methods == ()


def test_advice_when_nothing_simple_helps() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    bent = np.clip(p + 0.2 * np.sin(6 * np.pi * p), 0, 1)  # wrong in waves
    y = (rng.random(20_000) < bent).astype(int)
    assert "No temperature or shift" in verdict_of(np.column_stack([1 - p, p]), y).advice
    upside = (rng.random(20_000) < 1 - p).astype(int)
    assert "right order" in verdict_of(np.column_stack([1 - p, p]), upside).advice


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_a_shift_of_a_rare_class_is_no_temperature(shift: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000) - 3
    y = (rng.random(20_000) < 1 / (1 + np.exp(-x))).astype(int)
    p = 1 / (1 + np.exp(-x - shift))
    advice = verdict_of(np.column_stack([1 - p, p]), y, ("usual", "rare")).advice
    assert advice.startswith("Base rates are off, most that of rare")
    assert "AutoCorrector" in advice


@pytest.mark.parametrize("seed", range(4))
def test_a_temperature_above_1_is_too_sure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = 1.2 * rng.normal(size=10_000) - 5
    y = (rng.random(10_000) < 1 / (1 + np.exp(-x))).astype(int)
    p = 1 / (1 + np.exp(-1.3 * x - 2.5))
    advice = verdict_of(np.column_stack([1 - p, p]), y).advice
    if "temperature" in advice:
        about = float(advice.split("about ")[1].split(". ")[0])
        assert ("too sure" in advice.lower()) == (about > 1)


def test_too_few_rows_says_how_many_more() -> None:
    """With as many rows as it asks for, one can tell."""
    few = verdict_of(*drawn(3, 100))
    assert few.level == "cannot tell"
    more = int(few.advice.split("about ")[1].split(" more")[0].replace(",", ""))
    levels = [verdict_of(*drawn(3, 2 * (100 + more), seed=seed)).level for seed in range(8)]
    assert levels.count("cannot tell") <= 1


@pytest.mark.parametrize("p", [0.04, 1e-3, 1e-6])
def test_too_few_rows_of_what_is_rare(p: float) -> None:
    """Some tens of times it must have come: not more rows than that, though nothing came yet."""
    advice = constant_verdict(p, 0, 20).advice
    rows = 20 + int(advice.split("about ")[1].split(" more")[0].replace(",", ""))
    assert 5 / p < rows < 200 / p
    assert constant_verdict(p, round(3 * p * rows), 3 * rows).level != "cannot tell"


@pytest.mark.parametrize("p", [1e-15, 1e-170])
def test_what_no_log_can_tell(p: float) -> None:
    assert "no log" in constant_verdict(p, 0, 100).advice


@given(n=st.integers(1, 400), p=st.floats(1e-9, 1 - 1e-9))
@settings(deadline=None, max_examples=60)
def test_the_mean_gap_is_the_binomials(n: int, p: float) -> None:
    k = np.arange(n + 1)
    expected = binom.pmf(k, n, p) @ np.abs(k / n - p)
    assert float(mean_gap(np.array([n]), np.array([p]))[0]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(n=st.integers(10**6, 10**9), expected=st.floats(-6, 6).map(lambda power: 10**power), often=st.booleans())
def test_the_mean_gap_of_very_many_rows(n: int, expected: float, often: bool) -> None:
    p = min(expected / n, 0.5)
    k = np.arange(max(0, math.floor(n * p - 60 * math.sqrt(n * p) - 60)), math.ceil(n * p)) if n * p < 1e4 else None
    # the mean of |X − np| is twice that of the part below
    below = math.sqrt(n * p * (1 - p) / (2 * math.pi)) if k is None else binom.pmf(k, n, p) @ (n * p - k)
    found = mean_gap(np.array([n]), np.array([1 - p if often else p]))
    assert float(found[0]) == pytest.approx(2 * below / n, rel=1e-2)


@given(d=st.integers(2, 20), seed=st.integers(0, 2**32), rare=st.floats(-12, -0.1))
def test_classes_vary_together_as_their_covariance_says(d: int, seed: int, rare: float) -> None:
    rates = np.append(10**rare * np.random.default_rng(seed).dirichlet(np.ones(d - 1)), 0.0)
    rates[-1] = 1 - rates.sum()
    each = [Bins(np.array([rate]), np.array([10**9]), np.array([rate])) for rate in rates]
    exact = [Fraction(rate) for rate in rates]
    own = sum((rate * (1 - rate)) ** 2 for rate in exact)
    pairs = sum((a * b) ** 2 for i, a in enumerate(exact) for j, b in enumerate(exact) if i != j)
    assert together(each) == pytest.approx(1 + float(pairs / own), rel=1e-3)


@given(seed=st.integers(0, 2**32), n=st.integers(2, 300))
@settings(deadline=None, max_examples=30)
def test_bins_agree_with_the_measures_of_rows(seed: int, n: int) -> None:
    """Where forecasts of a bin are equal, nothing is lost by binning."""
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 11, size=n) / 10
    y = (rng.random(n) < p**2).astype(int)
    bins = bins_of(p, y)
    at = bin_of(p, 10).astype(int)
    assert bins.ece == pytest.approx(ece(p, y, view=1, bins=10), abs=1e-12)
    if len(np.unique(p[at == 9])) < 2:  # 0.9 and 1 share a bin
        square = literal_square(p, y.astype(float), at)
        assert bins.debiased_ece == pytest.approx(math.sqrt(max(square, 0.0)), abs=1e-7)
        assert bins.debiased_ece == pytest.approx(debiased_ece(p, y, view=1, bins=10, kind="width"), abs=1e-7)


def test_merged_bins_hold_equal_mass() -> None:
    p = np.random.default_rng(0).beta(1, 8, size=20_000)
    fine = bins_of(p, p > 0.2, bins=500)
    merged = fine.merged(10)
    assert merged.weight.sum() == 20_000
    assert len(merged.weight) == 10
    assert merged.weight.min() > 1500
    assert merged.mean_forecast == pytest.approx(p.mean())
    assert bins_of(np.full(5, 0.3), np.ones(5)).merged(10).weight.tolist() == [5]


@pytest.mark.heavy
@pytest.mark.parametrize(("d", "sharp"), [(2, 2.0), (3, 1.3), (3, 2.0), (10, 1.3), (10, 2.0)])
def test_intervals_from_bins_cover(d: int, sharp: float) -> None:
    """90 % intervals hold the true error in 87 to 94 % of 1,000 logs."""
    draw, rng = world(d, sharp=sharp), np.random.default_rng(0)
    found = verdict_of(*draw(2_000_000, rng))
    true = [view.error.value for view in found.views]
    held = np.zeros(2)
    for _ in range(1000):
        views = verdict_of(*draw(3000, rng)).views
        held += [view.error.low <= t <= view.error.high for view, t in zip(views, true, strict=True)]
    print(f"| from ten bins, {d} classes, to the power of {sharp} | {held[0] / 10:.1f} | {held[1] / 10:.1f} |")
    assert ((held >= 870) & (held <= 945)).all(), held


def held_of_many(classes: int, rows: int, own: float, logs: int, sharp: float = 2.0) -> float:
    """Return the share of logs whose class-wise interval holds the truth: too sure, or each class shifted."""
    shift = np.random.default_rng(5).normal(size=classes) * own

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        z = sharp * rng.normal(size=(n, classes))
        truth, said = (np.exp(each - each.max(axis=1, keepdims=True)) for each in (z, z + shift if own else 2 * z))
        return said / said.sum(axis=1, keepdims=True), truth / truth.sum(axis=1, keepdims=True)

    P, q = draw(20_000, np.random.default_rng(0))
    _, each = bin_rows(P, q, np.ones(len(P)))
    true = math.sqrt(np.mean([np.nansum(b.weight * (b.outcome - b.forecast) ** 2) / b.weight.sum() for b in each]))
    held = 0
    for seed in range(logs):
        rng = np.random.default_rng(1000 + seed)
        P, q = draw(rows, rng)
        found = interval_of(bin_rows(P, np.eye(classes)[draw_classes(q, rng)], np.ones(rows))[1])
        held += found.low <= true <= found.high
    return held / logs


def test_intervals_of_a_hundred_classes_hold_about() -> None:
    """Where most bins of high probabilities have a single row: those of the classes are joined."""
    assert held_of_many(100, 200, 0.0, 20) >= 0.75
    assert held_of_many(100, 200, 1.0, 20, sharp=3.0) >= 0.9  # 0.75 without what noise may hide


@pytest.mark.heavy
@pytest.mark.parametrize(("classes", "rows"), [(20, 300), (50, 1000), (100, 200), (100, 1000), (100, 5000)])
def test_intervals_of_many_classes_cover(classes: int, rows: int) -> None:
    held = [held_of_many(classes, rows, own, 300) for own in (0.0, 1.0)]
    print(f"| {classes} classes, {rows:,} rows | {100 * held[0]:.0f} | {100 * held[1]:.0f} |")
    assert held[0] >= 0.86
    assert held[1] >= (0.9 if rows == 200 else 0.83)  # two rows a class say little: the interval is wide


@pytest.mark.heavy
@pytest.mark.parametrize("d", [2, 3, 10, 50])
def test_chance_levels_are_right(d: int) -> None:
    draw, rng = world(d), np.random.default_rng(0)
    over = np.zeros(2)
    for _ in range(1000):
        over += [view.luck.p_value < 0.05 for view in verdict_of(*draw(2000, rng)).views]
    assert (over <= 65).all(), over
    assert (over >= 15).all(), over


def test_chance_and_interval_of_one_class_and_of_both_of_two_agree() -> None:
    """Two classes hold the same gaps twice: no more evidence than one."""
    P, y = drawn(2, 1000, sharp=1.3)
    one, other = bins_of(P[:, 0], y == 0), bins_of(P[:, 1], y == 1)
    both, alone = chance_of([one, other]), one.chance
    assert both.mean == pytest.approx(alone.mean, rel=1e-6)
    assert both.deviation == pytest.approx(alone.deviation, rel=0.01)
    assert interval_of([one, other]).high == pytest.approx(one.interval().high, rel=0.03)


def test_what_cannot_be_told_is_not_said_of_the_mean_either() -> None:
    rng = np.random.default_rng(4)
    p = rng.choice([0.55, 0.65, 0.75, 0.85, 0.9, 0.95, 0.99], size=103)
    q = np.clip(p - 0.085 + 0.1 * rng.standard_normal(103), 0, 1)
    y = rng.random(103) < q
    found = verdict_of(np.column_stack([1 - p, p]), y.astype(int))
    assert found.level == "cannot tell"
    assert "too sure by 0.103, which may be chance" in str(found)


def test_one_print_says_one_thing_of_few_rows() -> None:
    """103 rows of one forecast that is a little too high, and of others that are off either way."""
    forecast, outcome = np.array([0.65, 0.85, 0.95]), np.array([0.9, 0.5, 0.9])
    top = Bins(forecast, np.array([33, 30, 40]), outcome)
    verdict = Verdict(top, {"no": Bins(1 - forecast[::-1], np.array([40, 30, 33]), 1 - outcome[::-1]), "yes": top})
    assert verdict.level == "far off"
    said = str(verdict)
    assert "as sure as it should be" not in said
    assert "no tendency to over- or underconfidence is proved" in said
    assert "Isotonic" not in said
    assert len(said.splitlines()) == 3
