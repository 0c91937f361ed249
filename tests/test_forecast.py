from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import ForecastError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": [[0.5, 0.5]], "weights": [0.5]}, "weights sum to 0.5, expected 1"),
        ({"points": [[0.5, 0.5]] * 2, "weights": [1.5, -0.5]}, "weight 1 is -0.5"),
        ({"points": [[0.5, 0.5]], "weights": [0.5, 0.5]}, "1 points came with 2 weights"),
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


def test_equality_is_by_value() -> None:
    x = tc.Forecast([[0.5, 0.5]], nodes=[[0, 3]])
    assert x == tc.Forecast([[0.5, 0.5]], nodes=[[0, 3]])
    assert x != tc.Forecast([[0.5, 0.5]], nodes=[[0, 4]])
    assert x != tc.Forecast([[0.5, 0.5]])
    assert x != "a forecast"
    assert "1 point in R^2" in repr(x)
