"""The pictures themselves, read back from their axes."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import treecal as tc
from tests.strategies import one_hot, play
from treecal import plots
from treecal.exceptions import ParameterError
from treecal.forecasters import REGISTRY
from treecal.plots._style import FORECASTERS, PALETTE, SPARE
from treecal.plots._tree import class_hues, forecast_colors, leading_classes

NAMES = ["_a $x$", "b", "c"]


@pytest.fixture
def ax() -> Any:
    return Figure(layout="constrained").subplots()


def returns(ax: object, returned: object) -> None:
    assert returned is ax


def ledger(dim: int, rounds: int = 60) -> tc.Ledger:
    return play(tc.TreeCal(tc.Simplex(dim), arity=3), one_hot(dim, rounds, np.random.default_rng(0)))[1]


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

    assert plots.plot_reliability(ledger(2), 0).get_title() == "class 0"
    plt.close("all")


def test_a_forecaster_has_one_colour_in_all_pictures(ax: Any) -> None:
    from treecal import arena

    own = {name: kind for name, kind in REGISTRY.items() if kind.__module__.startswith("treecal.")}
    assert set(own) <= set(FORECASTERS)
    for name, kind in own.items():
        names = (name, kind.__name__, f"{kind.__name__}(Simplex(2), arity=3)", f"{kind.__name__}, arity 2")
        assert {plots.colour(each) for each in names} == {FORECASTERS[name]}
    plots.plot_error_over_time([1, 10], [0.5, 0.25], name="the model", ax=ax)
    plots.plot_error_over_time([1, 10], [0.5, 0.25], name="Harmonic(Simplex(2))", ax=ax)
    assert [line.get_color() for line in ax.lines] == [SPARE[0], FORECASTERS["harmonic"]]
    rivals: dict[str, arena.Maker] = {"RunningMean": tc.RunningMean, "TreeCal": tc.TreeCal, "mine": tc.TreeCal}
    rivals["TreeCal, arity 2"] = partial(tc.TreeCal, arity=2)
    streams = {"drift": arena.STREAMS["drift"]}
    table = arena.race(rivals, streams, [tc.Simplex(2)], rounds=30, seeds=(0, 1), workers=1)
    expected = [FORECASTERS["running-mean"], FORECASTERS["treecal"], SPARE[0], FORECASTERS["treecal"]]
    for draw, given in (
        (partial(plots.plot_errors, stream="drift", dim=2), table),
        (plots.plot_times, table),
        (partial(plots.plot_scores, stream="drift", dim=2), arena.summary(table)),
    ):
        ax.clear()
        returns(ax, draw(given, ax=ax))
        assert [line.get_color() for line in ax.lines][:4] == expected
    with pytest.raises(ParameterError, match="no scores for the stream 'rain'"):
        plots.plot_scores(arena.summary(table), stream="rain", dim=2, ax=ax)


def test_forecasters_that_others_add_have_spare_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "theirs", tc.RunningMean)
    monkeypatch.setitem(REGISTRY, "ours", tc.RunningMean)
    assert [plots.colour(name) for name in ("theirs", "ours", "nobody's")] == [SPARE[0], SPARE[1], None]


# Machado, Oliveira and Fernandes (2009), complete deficiency, on linear RGB.
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]


def as_seen(color: str, eye: Any) -> Any:
    """Return the CIE Lab coordinates of a colour, as an eye sees it."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(eye) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ seen / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def luminance(color: str) -> float:
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("paper", ["#ffffff", "#14171a", "#1e2129"], ids=["white", "the report's", "the site's"])
def test_colours_show_on_light_and_dark_pages(paper: str) -> None:
    """The contrast of WCAG: 1 cannot be seen. Okabe and Ito's orange has 2.2 on white."""
    for color in {*PALETTE, *FORECASTERS.values()}:
        light, dark = sorted((luminance(color), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 2.2, color


@pytest.mark.parametrize("eye", [np.eye(3), PROTANOPIA, DEUTERANOPIA], ids=["usual", "protanopia", "deuteranopia"])
def test_the_colours_of_forecasters_can_be_told_apart(eye: Any) -> None:
    """A distance of 2 can just be seen side by side; lines in a picture need several times that."""
    seen = {name: as_seen(color, eye) for name, color in FORECASTERS.items()}
    near = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    assert min(near.values()) > 15, min(near, key=near.__getitem__)
