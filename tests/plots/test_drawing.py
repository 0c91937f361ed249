"""The pictures themselves, read back from their axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import treecal as tc
from tests.strategies import one_hot, play
from treecal import plots
from treecal.exceptions import ParameterError
from treecal.plots._style import PALETTE
from treecal.plots._tree import class_hues, forecast_colors, leading_classes

NAMES = ["_a $x$", "b", "c"]


@pytest.fixture
def ax() -> Any:
    return Figure(layout="constrained").subplots()


def returns(ax: object, returned: object) -> None:
    assert returned is ax


def ledger(dim: int, rounds: int = 60) -> tc.Ledger:
    return play(tc.TreeCal(tc.Simplex(dim), arity=3), one_hot(dim, rounds, np.random.default_rng(0)))[1]


def test_reliability_is_drawn_as_worked_out(ax: Any) -> None:
    book = ledger(2)
    returns(ax, plots.plot_reliability(book, 1, name="_rain $5", ax=ax))
    r = plots.reliability(book, 1)
    dots = np.concatenate([np.column_stack(c.lines[0].get_data()) for c in ax.containers if hasattr(c, "has_yerr")])
    assert sorted(map(tuple, dots)) == sorted(zip(r.forecast, r.outcome, strict=True))
    bars = [bar.get_height() for bar in ax.patches]
    assert np.array(bars) / max(bars) == pytest.approx(r.weight / r.weight.max())
    assert ax.get_title() == "_rain $5"
    ax.figure.savefig("/dev/null", format="svg")  # an odd $ would be a syntax error in a formula


def test_ternary_shows_every_forecast_and_its_outcome(ax: Any) -> None:
    book = tc.Ledger(tc.Simplex(3))
    book.record([1, 0, 0], [0, 0, 1])
    book.record([0.5, 0.5, 0], [0, 1, 0])
    returns(ax, plots.plot_ternary(book, classes=NAMES, ax=ax))
    lines, dots = ax.collections
    top = (0.5, np.sqrt(3) / 2)
    assert dots.get_offsets().tolist() == [pytest.approx((0, 0)), pytest.approx((0.5, 0))]
    assert [segment.tolist()[1] for segment in lines.get_segments()] == [pytest.approx(top), pytest.approx((1, 0))]
    assert [text.get_text() for text in ax.texts] == NAMES
    with pytest.raises(ParameterError, match="three classes"):
        plots.plot_ternary(ledger(2), ax=ax)
    with pytest.raises(ParameterError, match="2 classes were named, expected 3"):
        plots.plot_ternary(book, classes=["a", "b"], ax=ax)


@pytest.mark.parametrize("dim", [2, 3, 5, 12])
def test_the_tree_has_a_row_for_each_height_and_a_key(dim: int, ax: Any) -> None:
    outcomes = one_hot(dim, 64, np.random.default_rng(1))
    returns(ax, plots.plot_tree(plots.interval_tree(outcomes, arity=4), ax=ax))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["16", "4", "1"]
    assert ax.yaxis_inverted()  # the first row, of the longest intervals, is on top
    keys = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(keys) == min(dim, len(PALETTE))
    assert ("others" in keys) == (dim > len(PALETTE))


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_colours_tell_classes_apart(dim: int) -> None:
    hues = class_hues(dim, list(range(dim)))
    assert hues.tolist() == [pytest.approx(to_rgb(color)) for color in PALETTE[:dim]]
    assert forecast_colors(np.eye(dim), hues)[:, :3] == pytest.approx(hues)
    centre = forecast_colors(np.full((1, dim), 1 / dim), hues)
    assert centre[0].tolist() == pytest.approx([0.9, 0.9, 0.9, 1])
    assert forecast_colors(np.full((1, dim), np.nan), hues)[0, 3] == 0


def test_of_many_classes_those_that_lead_keep_their_colour() -> None:
    dim = 12
    leaders = leading_classes(plots.interval_tree(np.eye(dim)[[11] * 50 + list(range(8))], arity=4))
    assert 11 in leaders
    assert len(leaders) == len(PALETTE) - 1
    hues = class_hues(dim, leaders)
    assert len(np.unique(hues, axis=0)) == len(PALETTE)
    assert leading_classes(plots.interval_tree(np.eye(8), arity=4)) == list(range(8))


def test_curves_add_up_on_one_pair_of_axes(ax: Any) -> None:
    plots.plot_error_over_time([1, 10], [0.5, 0.25], certificate=[2, 1], name="_x $", ax=ax)
    returns(ax, plots.plot_error_over_time([1, 10], [0.4, 0.1], name="y", ax=ax))
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-"]
    assert ax.lines[0].get_color() == ax.lines[1].get_color() != ax.lines[2].get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["_x $", "_x $: guaranteed ≤", "y"]
    assert ax.lines[1].get_ydata().tolist() == [2, 1]
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] > 2
    ax.figure.savefig("/dev/null", format="svg")


@pytest.mark.parametrize(
    ("marks", "errors", "certificate", "problem"),
    [
        ([], [], None, "increasing"),
        ([2, 1], [0, 0], None, "increasing"),
        ([0, 1], [0, 0], None, "increasing"),
        ([1, 2], [0], None, "1 errors for 2 marks"),
        ([1, 2], [0, 0], [1], "1 certificate for 2 marks"),
        ([1, 2], [0, np.nan], None, "nan"),
    ],
)
def test_curves_refuse(marks: Any, errors: Any, certificate: Any, problem: str, ax: Any) -> None:
    with pytest.raises(ParameterError, match=problem):
        plots.plot_error_over_time(marks, errors, certificate=certificate, ax=ax)
    assert not ax.lines


def test_new_axes_when_none_are_given() -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    assert plots.plot_reliability(ledger(2), 0).get_title() == "class 1"
    plt.close("all")
