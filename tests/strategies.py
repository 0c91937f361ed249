"""Hypothesis strategies for sets, outcomes and forecasts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import treecal as tc
from treecal._typing import Array
from treecal.geometry import Lp
from treecal.testing import sample_outcomes


def spaces(max_dim: int = 4) -> st.SearchStrategy[tc.ConvexSet]:
    dims = st.integers(1, max_dim)
    norms = st.sampled_from([tc.l1, tc.l2, tc.linf, Lp(1.5), Lp(3)])
    simplices = st.builds(tc.Simplex, st.integers(2, max_dim))
    balls = st.builds(
        lambda d, r, n, c: tc.Ball(d, radius=r, norm=n, centre=c),
        dims,
        st.floats(0.01, 100),
        norms,
        st.floats(-10, 10),
    )
    boxes = st.builds(lambda d, low, width: tc.Box(low, low + width, dim=d), dims, st.floats(-5, 5), st.floats(0.1, 9))
    hulls = st.builds(
        lambda d, n, seed: tc.Polytope(vertices=np.random.default_rng(seed).normal(size=(n + d, d))),
        dims,
        st.integers(1, 4),
        st.integers(0, 10**6),
    )
    cdfs = st.builds(lambda low, points: tc.Cdf(low, low + 3, points=points), st.floats(-5, 5), dims)
    simple = st.one_of(simplices, balls, boxes, hulls, cdfs)
    return st.one_of(simple, st.builds(tc.Product, simple, simple))


def streams(space: tc.ConvexSet, rounds: int, seed: int) -> Array:
    return sample_outcomes(space, rounds, np.random.default_rng(seed))


def one_hot(dim: int, rounds: int, rng: np.random.Generator) -> Array:
    outcomes: Array = np.eye(dim)[rng.integers(dim, size=rounds)]
    return outcomes


def play(forecaster: tc.Forecaster, outcomes: Array) -> tuple[list[tc.Forecast], tc.Ledger]:
    ledger, forecasts = tc.Ledger(forecaster.space), []
    for y in outcomes:
        x = forecaster.predict()
        ledger.record(x, y)
        forecaster.update(y)
        forecasts.append(x)
    return forecasts, ledger
