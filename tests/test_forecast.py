from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot
from treecal.exceptions import ForecastError
from treecal.forecast import Forecast, TreeForecast


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": [[0.5, 0.5]], "weights": [0.5]}, "weights sum to 0.5, expected 1"),
        ({"points": [[0.5, 0.5]] * 2, "weights": [1.5, -0.5]}, "weight 1 is -0.5"),
        ({"points": [[0.5, 0.5]], "weights": [0.5, 0.5]}, "1 points and 2 weights"),
        ({"points": [[0.5, 0.6]], "space": tc.Simplex(2)}, "point 0 lies outside"),
        ({"points": [[0.5, 0.5]], "space": tc.Simplex(3)}, "2 coordinates, expected 3"),
        ({"points": [0.5, 0.5]}, "2 dimensions"),
        ({"points": np.empty((0, 2))}, "one point or more"),
        ({"points": [[np.nan, 0.5]]}, "points holds nan"),
        ({"points": [[0.5, 0.5]], "weights": [np.nan]}, "weights holds nan"),
        ({"points": [["a", "b"]]}, "expected real numbers"),
        ({"points": [[1.0], [1.0, 2.0]]}, "not an array of numbers"),
        ({"points": [[0.5, 0.5]], "nodes": [[0.5, 1]]}, "expected integers of shape"),
        ({"points": [[0.5, 0.5]], "nodes": [1, 2]}, "expected integers of shape"),
    ],
)
def test_what_is_no_distribution_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ForecastError, match=message):
        tc.Forecast(**arguments)


def test_immutable() -> None:
    points = np.array([[0.5, 0.5], [1.0, 0.0]])
    x = tc.Forecast(points, nodes=[[0, 1], [1, 0]])
    points[:] = 0
    assert x.mean.tolist() == [0.75, 0.25]
    for array in (x.points, x.weights, x.nodes):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        x.points = points  # type: ignore[misc]


def test_merged_joins_equal_points() -> None:
    x = tc.Forecast([[1.0, 0.0], [0.5, 0.5], [1.0, -0.0]], weights=[0.25, 0.5, 0.25])
    merged = x.merged()
    assert merged.points.tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert merged.weights.tolist() == [0.5, 0.5]
    np.testing.assert_allclose(merged.mean, x.mean)


def test_samples_follow_the_weights() -> None:
    x = tc.Forecast([[1.0, 0.0], [0.5, 0.5]], weights=[0.2, 0.8])
    rng = np.random.default_rng(0)
    draws = np.array([x.sample(rng) for _ in range(20_000)])
    share = (draws[:, 0] == 1.0).mean()
    assert abs(share - 0.2) < 5 * (0.2 * 0.8 / 20_000) ** 0.5


@pytest.mark.parametrize("make", [tc.Guarded, lambda space: tc.Sampled(tc.TreeCal(space), block=2)])
def test_a_set_is_the_same_object_in_every_copy(make: Any) -> None:
    """Ledgers compare sets at every round: one that was copied with a forecaster would be compared by its arguments."""
    space = tc.Box(0, 1, dim=3)
    forecaster = make(space)
    for each in (forecaster, copy.deepcopy(forecaster)):
        for _ in range(3):
            assert each.predict().space is space
            each.update(space.centre)


def test_equality_is_by_value() -> None:
    x = tc.Forecast([[0.5, 0.5]], nodes=[[0, 3]])
    assert x == tc.Forecast([[0.5, 0.5]], nodes=[[0, 3]])
    assert x != tc.Forecast([[0.5, 0.5]], nodes=[[0, 4]])
    assert x != tc.Forecast([[0.5, 0.5]])
    assert x != "a forecast"
    assert "1 point in R^2" in repr(x)


def forecasts() -> list[Forecast]:
    space = tc.Simplex(2)
    made = [tc.Forecast([[0.5, 0.5], [1.0, 0.0]], weights=[0.25, 0.75], nodes=[[0, 3], [1, 1]]), tc.Forecast([[1, 0]])]
    forecasters: list[tc.Forecaster] = [
        tc.TreeCal(space, arity=2),
        tc.AdaptiveTreeCal(space, arity=2),
        tc.Harmonic(space),
        tc.BinaryGrid(),
        tc.RunningMean(space),
    ]
    for f in forecasters:
        for y in one_hot(2, 9, np.random.default_rng(0)):
            f.update(y)
        made.append(f.predict())
    return made


@pytest.mark.parametrize("x", forecasts(), ids=lambda x: f"{type(x).__name__} of {len(x)}")
def test_copies_are_equal_and_as_immutable(x: Forecast) -> None:
    for again in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x):
        assert again == x
        assert type(again) is type(x)
        assert again.space == x.space
        assert repr(again) == repr(x)
        assert again.points is again.points
        for array in (again.points, again.weights, again.nodes):
            assert array is None or not array.flags.writeable
        for name in ("points", "weights", "nodes", "space"):
            with pytest.raises(AttributeError):
                setattr(again, name, None)


def test_a_path_names_its_nodes() -> None:
    points = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    x = TreeForecast(points, np.full(3, 1 / 3), 30, 4, tc.Simplex(2))
    assert x.nodes.tolist() == [[0, 30], [1, 7], [2, 1]]
    assert x.nodes is x.nodes
    assert (x.rounds, x.arity) == (30, 4)
    deep = TreeForecast(np.full((70, 1), 0.5), np.full(70, 1 / 70), 5, 2, tc.Box(0, 1, dim=1))
    assert deep.nodes.tolist() == [[height, 5 >> height] for height in range(70)]


@pytest.mark.parametrize("make", [tc.TreeCal, tc.AdaptiveTreeCal, tc.Harmonic, tc.RunningMean])
def test_a_held_forecast_never_changes_whatever_another_thread_does(make: Any) -> None:
    f, stop, interval = make(tc.Simplex(3)), threading.Event(), sys.getswitchinterval()
    outcomes = one_hot(3, 300, np.random.default_rng(0))

    def learn() -> None:
        while not stop.is_set():
            for y in outcomes:
                f.update(y)
            if f.rounds > 2000:
                f.set_state(make(tc.Simplex(3)).get_state())

    thread = threading.Thread(target=learn)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        changed = 0
        for _ in range(3000):
            x = f.predict()
            seen = x.points.copy()
            for _ in range(5):
                changed += not np.array_equal(seen, x.points)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert changed == 0
