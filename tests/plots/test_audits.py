"""Pictures of audits: reliability, small multiples, before and after, windows of time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import treecal as tc
from treecal import plots
from treecal._typing import Array, Integers
from treecal.auditing import Audit, Bins
from treecal.exceptions import ParameterError
from treecal.monitor import Alarm
from treecal.plots._audit import _place
from treecal.plots._reliability import DIAGONAL, FINE, HISTOGRAM, OFF, THIN
from treecal.plots._sources import bins_of
from treecal.plots._style import BLUE, VERMILION


def sharpened(dim: int, rows: int, power: float = 2.0, seed: int = 0) -> tuple[Array, Integers]:
    """Return forecasts that are too sure, if power is more than 1, and classes."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(dim), size=rows)
    y = (truth.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    sure = truth**power
    return sure / sure.sum(axis=1)[:, None], y


def audited(dim: int, rows: int, power: float = 2.0, **options: Any) -> Audit:
    return tc.audit(*sharpened(dim, rows, power), classes=range(dim), exact=False, **options)


@pytest.fixture
def ax() -> Any:
    return Figure(layout="constrained").subplots()


def returns(ax: object, returned: object) -> None:
    assert returned is ax


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def marks(ax: Any) -> dict[str, list[tuple[float, float]]]:
    """Return where the marks are, by colour, with `hollow` after it for those that are."""
    found: dict[str, list[tuple[float, float]]] = {}
    for each in ax.collections:
        if type(each).__name__ == "PathCollection":
            color = {to_rgba(BLUE): "blue", to_rgba(VERMILION): "orange"}[tuple(each.get_edgecolor()[0])]
            color += " hollow" * (not len(each.get_facecolor()))
            found[color] = [tuple(place) for place in each.get_offsets().tolist()]
    return found


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 80))
@settings(max_examples=6, deadline=None)
def test_an_audit_and_a_ledger_of_the_same_rows_have_the_same_diagrams(seed: int, dim: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    P, y = rng.multinomial(8, np.full(dim, 1 / dim), size=rows) / 8, rng.integers(dim, size=rows)
    ledger, audit = tc.Ledger(tc.Simplex(dim)), tc.audit(P, y, classes=range(dim), exact=False)
    for p, k in zip(P, y, strict=True):
        ledger.record(p, np.eye(dim)[k])
    for k in (None, *range(dim)):
        for one, other in zip(plots.reliability(ledger, k), plots.reliability(audit, k), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        assert bins_of(audit, k).bins is bins_of(audit.whole, None if k is None else str(k)).bins


def test_a_diagram_shows_every_bin_by_its_kind(ax: Any) -> None:
    weight = np.array([1000, 0, 500, 10, 5, 0, 0, 0, 0, 2000])
    forecast = np.array([0.05, np.nan, 0.25, 0.35, 0.45, np.nan, np.nan, np.nan, np.nan, 0.95])
    outcome = np.array([0.05, np.nan, 0.40, 0.30, 1.00, np.nan, np.nan, np.nan, np.nan, 0.80])
    bins = Bins(forecast, weight, outcome)
    returns(ax, plots.plot_reliability(bins, ax=ax))
    expected = {
        "blue": [(0.05, 0.05)],
        "orange": [(0.25, 0.40), (0.95, 0.80)],
        "blue hollow": [(0.35, 0.30)],
        "orange hollow": [(0.45, 1.0)],
    }
    assert marks(ax) == expected
    sizes = {c.get_offsets()[0][0]: c.get_sizes() for c in ax.collections if type(c).__name__ == "PathCollection"}
    assert sizes[0.25][1] > sizes[0.05][0] > sizes[0.25][0] > sizes[0.35][0] > sizes[0.45][0]
    (histogram,) = ax.patches
    heights, edges, _ = histogram.get_data()
    np.testing.assert_allclose(heights / heights.max(), weight / 2000)
    np.testing.assert_allclose(edges, np.arange(11) / 10)
    assert legend(ax) == [key.name for key in (DIAGONAL, FINE, OFF, THIN, HISTOGRAM)]
    (words,) = (text.get_text() for text in ax.texts)
    interval = bins.interval()
    assert f"ECE {bins.ece:.3f}, by chance up to {bins.chance.high:.3f}" in words
    assert f"debiased {interval.value:.3f} (90 %: {interval.low:.3f}–{interval.high:.3f})" in words


def test_the_legend_names_what_is_there(ax: Any) -> None:
    plots.plot_reliability(Bins(np.array([0.5]), np.array([1000]), np.array([0.5])), ax=ax)
    assert legend(ax) == [key.name for key in (DIAGONAL, FINE, HISTOGRAM)]
    ax.figure.savefig("/dev/null", format="svg")


def test_titles(ax: Any) -> None:
    audit = tc.audit(
        *sharpened(3, 200)[:1], np.array(["$a", "_b", "7"])[sharpened(3, 200)[1]], classes=["$a", "_b", "7"]
    )
    for k, title in ((None, "most likely class"), ("$a", "$a"), (0, "$a"), ("_b", "_b"), (2, "class 7")):
        assert plots.plot_reliability(audit, k, ax=Figure().subplots()).get_title() == title
    assert plots.plot_reliability(audit.whole, 0, name="mine $", ax=ax).get_title() == "mine $"
    ax.figure.savefig("/dev/null", format="svg")  # an odd $ would be a syntax error in a formula


def test_before_and_after_stand_on_one_axis(ax: Any) -> None:
    before, after = audited(3, 1500), audited(3, 1500, power=1)
    plots.plot_reliability({"$before": before, "_after": after}, ax=ax)
    drawn = marks(ax)
    for audit, color in ((before, "orange"), (after, "blue")):
        r, thin = plots.reliability(audit), audit.whole.top_label.thin[audit.whole.top_label.weight > 0]
        assert drawn[color] == [*zip(r.forecast[~thin], r.outcome[~thin], strict=True)]
    bad, good = (audit.whole.top_label.interval() for audit in (before, after))
    for text, name, found in zip(legend(ax), ("$before", "_after"), (bad, good), strict=False):
        assert text == f"{name}: {found.value:.3f} ({found.low:.3f}–{found.high:.3f})"
    assert good.high < bad.low  # the test would show a swap
    ax.figure.savefig("/dev/null", format="svg")


def test_a_ledger_and_a_corrector_are_drawn_so_too(ax: Any) -> None:
    ledgers = {}
    for name, power in (("before", 2.0), ("after", 1.0)):
        ledgers[name] = tc.Ledger(tc.Simplex(3))
        for p, k in zip(*sharpened(3, 300, power), strict=True):
            ledgers[name].record(p, np.eye(3)[k])
    plots.plot_reliability(ledgers, ax=ax)
    assert [name.partition(":")[0] for name in legend(ax)][:2] == ["before", "after"]
    assert ax.get_title() == "most likely class"


@pytest.mark.parametrize(("dim", "shown", "left"), [(2, 1, 0), (9, 9, 0), (10, 9, 1), (50, 9, 41)])
def test_an_audit_shows_the_classes_with_the_largest_errors(dim: int, shown: int, left: int) -> None:
    audit, figure = audited(dim, 2000), Figure(figsize=(12, 7), layout="constrained")
    axes = plots.plot_audit(audit, figure=figure)
    assert axes == figure.axes
    assert axes[0].get_title() == "most likely class, 2,000 rows"
    errors = [audit.whole.classes[ax.get_title().removeprefix("class ")].debiased_ece for ax in axes[1:]]
    assert len(errors) == shown
    every = sorted((bins.debiased_ece for bins in audit.whole.classes.values()), reverse=True)
    assert errors == every[:shown] or dim == 2  # of two classes the second
    (key,) = figure.legends
    note = {0: "", 1: "1 more class with smaller errors is not shown"}.get(
        left, f"{left} more classes with smaller errors are"
    )
    assert key.get_title().get_text().startswith(note)
    assert bool(key.get_title().get_text()) == bool(left)


@pytest.mark.parametrize("rows", [1, 40])
def test_few_rows_are_drawn(rows: int) -> None:
    audit, figure = audited(4, rows), Figure(layout="constrained")
    assert len(plots.plot_audit(audit.whole, figure=figure)) == 5
    assert not {"blue", "orange"} & marks(figure.axes[0]).keys() or rows == 40
    figure.savefig("/dev/null", format="svg")


def test_names_cannot_break_a_picture() -> None:
    names = ["<script>alert(1)</script>", "a name that goes on " * 9, "$x^$", "two\nlines\x07", "_hidden"]
    P, y = sharpened(5, 300)
    audit = tc.audit(P, np.array(names)[y], classes=names)
    with plots.drawing(9, 5) as figure:
        plots.plot_audit(audit, figure=figure)
        picture = plots.svg(figure)
    titles = {ax.get_title() for ax in figure.axes[1:]}
    assert {"$x^$", "two lines ", "_hidden"} <= titles
    assert max(map(len, titles)) <= 28
    assert "<script" not in picture
    import xml.etree.ElementTree as ET

    assert "<script>alert(1)<" in "".join(ET.fromstring(picture).itertext())


def by_week(weeks: Integers, p: Array, y: Integers) -> Audit:
    return tc.audit({"p": p, "y": y, "week": weeks}, forecast="p", outcome="y", by="week", exact=False)


def test_windows_show_the_error_of_each_group_and_the_alarm(ax: Any) -> None:
    rng, sizes = np.random.default_rng(0), [400, 600, 300, 700]
    week = np.repeat([3, 5, 8, 10], sizes)  # groups are in order of their values
    p = rng.random(2000)
    y = (rng.random(2000) < np.where(week < 8, p, p**2)).astype(int)
    monitor, audit = tc.Monitor(tc.Simplex(2)), by_week(week, p, y)
    monitor.update_many(np.column_stack([1 - p, p]), y)
    assert monitor.alarm is not None
    returns(ax, plots.plot_windows(audit, 1, alarm=monitor.alarm, ax=ax))
    intervals = [part.classes["1"].interval() for part in audit.groups.values()]
    drawn = marks(ax)
    assert drawn["blue"] == [(i, found.value) for i, found in enumerate(intervals) if found.low == 0]
    assert drawn["orange"] == [(i, found.value) for i, found in enumerate(intervals) if found.low > 0]
    bars = [
        path.vertices[:, 1].tolist() for c in ax.collections if "Line" in type(c).__name__ for path in c.get_paths()
    ]
    assert sorted(bars) == sorted([found.low, found.high] for found in intervals)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["3", "5", "8", "10"]
    (line,) = ax.lines
    assert 1.5 < line.get_xdata()[0] < 2.5  # in the third window, the first that is off
    assert legend(ax)[-2].startswith(f"alarm after round {monitor.alarm.round:,}")
    heights = np.array([bar.get_height() for bar in ax.patches[:4]])
    np.testing.assert_allclose(heights / heights.max(), np.array(sizes) / 700)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_a_round_lies_in_its_window(sizes: list[int]) -> None:
    rows = [(window, within) for window, size in enumerate(sizes) for within in range(1, size + 1)]
    for number, (window, within) in enumerate(rows, start=1):
        assert _place(number, np.array(sizes, float)) == pytest.approx(window - 0.5 + within / sizes[window])


def test_windows_refuse(ax: Any) -> None:
    p, y = np.full(20, 0.5), np.arange(20) % 2
    audit = by_week(np.arange(20) // 10, p, y)
    alarm = Alarm(21, 3, "temperature", None, "too sure", 2.0, 0.1, 25.0)
    with pytest.raises(ParameterError, match="alarm was raised after round 21, and the audit has 20 rows"):
        plots.plot_windows(audit, alarm=alarm, ax=ax)
    with pytest.raises(ParameterError, match="has no windows of time"):
        plots.plot_windows(tc.audit(p, y), ax=ax)
    with pytest.raises(ParameterError, match="audit is of type Calibration, expected an Audit"):
        plots.plot_windows(audit.whole, ax=ax)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"alarm is 3, expected .*monitor\.alarm"):
        plots.plot_windows(audit, alarm=3, ax=ax)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="k is 'x', expected a class"):
        plots.plot_windows(audit, "x", ax=ax)
    assert not ax.has_data()


def test_many_windows_have_few_names(ax: Any) -> None:
    week = np.arange(300) // 3
    plots.plot_windows(by_week(week, np.full(300, 0.5), np.arange(300) % 2), ax=ax)
    assert len(ax.get_xticklabels()) <= 12


def test_reliability_refuses(ax: Any) -> None:
    audit = audited(3, 50)
    empty = Bins(np.array([np.nan]), np.array([0]), np.array([np.nan]))
    ball = tc.Ledger(tc.Box(0, 1, dim=2))
    ball.record([0.5, 0.9], [1, 0])
    for source, k, bins, problem in (
        (audit, 3, None, r"k is 3, expected a class \('0', '1', '2'\) or its number, from 0 to 2"),
        (audit, "rain", None, "k is 'rain', expected a class"),
        (audit, None, 20, "bins is for ledgers"),
        (audit.whole.top_label, 1, None, "these are the bins of one class"),
        (empty, None, None, "there are no rows"),
        ([0.5], None, None, "source is of type list, expected an Audit"),
        ({}, None, None, "empty dictionary"),
        (ball, None, None, "k is missing"),
    ):
        with pytest.raises(ParameterError, match=problem):
            plots.plot_reliability(source, k, bins=bins, ax=ax)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="audit is of type Bins, expected an Audit or a Calibration"):
        plots.plot_audit(audit.whole.top_label, figure=ax.figure)  # type: ignore[arg-type]
    assert not ax.has_data()


def test_a_picture_is_the_same_byte_for_byte_and_without_background() -> None:
    def drawn(*, inline: bool) -> str:
        with plots.drawing(9, 4) as figure:
            plots.plot_audit(audited(3, 300), figure=figure)
            return plots.svg(figure, inline=inline)

    image, part = drawn(inline=False), drawn(inline=True)
    assert image == drawn(inline=False)
    assert "currentColor" in image
    assert "prefers-color-scheme:dark" in image
    assert "<style" not in part  # it would apply to the page
    assert "#ffffff" not in image


def test_plot_says_what_it_needs() -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import treecal as tc; audit = tc.audit([0.5, 0.6], [0, 1])\n"
        "assert '<table' in audit._repr_html_() and '<svg' not in audit._repr_html_()\n"
        "for part in (audit, audit.whole):\n"
        "    try: part.plot()\n"
        "    except tc.TreeCalError as error: print(error)\n"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert told.count("(the extra plots)") == 2


def test_plot_draws_on_a_new_figure() -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    audit = audited(3, 100)
    assert len({ax.figure for ax in (*audit.plot(), *audit.whole.plot())}) == 2
    plt.close("all")


def test_windows_of_time_come_before_groups_and_bring_their_alarm(ax: Any) -> None:
    rng = np.random.default_rng(0)
    p, week = rng.random(3000), np.arange(3000) // 500
    y = (rng.random(3000) < np.where(week < 3, p, p**2)).astype(int)
    log = {"p": p, "y": y, "week": week, "site": week % 2}
    audit = tc.audit(log, forecast="p", outcome="y", by="site", time="week", exact=False)
    plots.plot_windows(audit, 1, ax=ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1", "2", "3", "4", "5"]
    assert legend(ax)[-2].startswith("alarm after round")
