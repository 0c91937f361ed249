"""The contract of a forecaster, as checks to run on any of them: ours, and yours.

`check_forecaster(make)` runs them all; `CHECKS` lists them one by one for a parametrised test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.exceptions import SnapshotError, TreeCalError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import ConvexSet, Simplex, SquaredEuclidean
from treecal.geometry._convex import LARGEST
from treecal.ledger import Ledger
from treecal.state import dumps, loads

Make = Callable[[], Forecaster]
Check = Callable[[Make, Array], None]


def check_forecaster(make: Make, *, outcomes: Array | None = None) -> None:
    """Run every check on a forecaster; the first that fails raises an `AssertionError` that says what was expected.

    Parameters
    ----------
    make
        Makes the forecaster anew, the same one each time: a fresh generator of the same seed if it draws.
    outcomes
        Rounds to play, `(rounds, dim)`, at least four. By default 60 drawn from the set, which must then be able to
        sample.

    Examples
    --------
    >>> import treecal as tc
    >>> check_forecaster(lambda: tc.TreeCal(tc.Simplex(3), arity=3))
    """
    if outcomes is None:
        outcomes = sample_outcomes(make().space, 60, np.random.default_rng(0))
    for check in CHECKS:
        check(make, outcomes)


def sample_outcomes(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
    """Return outcomes to test with: points of the set, every second one extreme where extremes can be found."""
    outcomes = np.array(space.sample(rng, rounds))
    with contextlib.suppress(UnsupportedError):
        outcomes[::2] = space.minimise(rng.standard_normal((len(outcomes[::2]), space.dim)))
    return outcomes


def check_forecasts_are_distributions(make: Make, outcomes: Array) -> None:
    """Weights are non-negative with sum 1, points lie in the set, and nothing announced can be written to."""
    forecaster = make()
    for x, _ in _play(forecaster, outcomes):
        n = len(x)
        assert x.points.shape == (n, forecaster.space.dim), f"points have shape {x.points.shape}"
        assert x.weights.shape == (n,), f"weights have shape {x.weights.shape}"
        assert x.weights.min() >= 0, "a weight is negative"
        assert abs(x.weights.sum() - 1) < 1e-12, f"weights sum to {x.weights.sum()!r}"
        assert forecaster.space.contains(x.points).all(), "a point lies outside the set"
        for array in (x.points, x.weights, x.nodes):
            assert array is None or not array.flags.writeable, "a forecast can be written to"


def check_predict_repeats(make: Make, outcomes: Array) -> None:
    """`predict()` twice without an `update` gives the same forecast, and moves nothing."""
    once, twice = make(), make()
    for y in outcomes:
        first = twice.predict()
        assert twice.predict() == first == once.predict(), "predict() twice gave two forecasts"
        once.update(y)
        twice.update(y)


def check_past_forecasts_stay(make: Make, outcomes: Array) -> None:
    """A forecast once announced never changes, whatever comes after."""
    kept = [(x, x.points.copy(), x.weights.copy()) for x, _ in _play(make(), outcomes)]
    for x, points, weights in kept:
        assert np.array_equal(x.points, points), "an old forecast's points changed"
        assert np.array_equal(x.weights, weights), "an old forecast's weights changed"


def check_rounds_count_up(make: Make, outcomes: Array) -> None:
    """`rounds` is the number of outcomes seen."""
    forecaster = make()
    for t, _ in enumerate(_play(forecaster, outcomes)):
        assert forecaster.rounds == t, f"rounds is {forecaster.rounds} in round {t + 1}"


def check_same_past_same_forecast(make: Make, outcomes: Array) -> None:
    """Two forecasters made alike that see the same outcomes say the same: there is no hidden randomness."""
    for (a, _), (b, _) in zip(_play(make(), outcomes), _play(make(), outcomes), strict=True):
        assert a == b, "two equal forecasters gave two forecasts"


def check_outcomes_are_not_kept(make: Make, outcomes: Array) -> None:
    """The caller may reuse the array it passed in."""
    plain, reused, buffer = make(), make(), np.empty(outcomes.shape[1])
    for y in outcomes:
        assert plain.predict() == reused.predict(), "the forecaster kept a reference to the caller's array"
        plain.update(y)
        buffer[:] = y
        reused.update(buffer)
        buffer[:] = np.nan


def check_outcomes_of_any_form(make: Make, outcomes: Array) -> None:
    """Lists, strided views and other byte orders count as the vectors they hold."""
    plain, varied = make(), make()
    forms: list[Callable[[Array], Any]] = [list, lambda y: np.repeat(y, 2)[::2], lambda y: y.astype(">f8")]
    for t, y in enumerate(outcomes):
        assert plain.predict() == varied.predict(), "the form of an outcome made a difference"
        plain.update(y)
        varied.update(forms[t % 3](y))


def bad_outcomes(space: ConvexSet) -> dict[str, Any]:
    """Return things that are not outcomes, by what is wrong with them."""
    centre = np.asarray(space.centre, dtype=np.float64)
    first = np.arange(space.dim) == 0
    return {
        "too long": np.append(centre, 0.0),
        "empty": np.array([]),
        "NaN": np.where(first, np.nan, centre),
        "infinite": np.where(first, np.inf, centre),
        "minus infinite": np.where(first, -np.inf, centre),
        "far outside": np.where(first, 4 * LARGEST, centre),
        "as large as can be": np.where(first, 1e308, centre),
        "a string": "rain",
        "bytes": b"rain",
        "strings": ["rain"] * space.dim,
        "None": None,
        "Nones": [None] * space.dim,
        "a number": 0.5,
        "a matrix": centre[None],
        "objects": np.array([object()] * space.dim),
        "an integer too large": [10**400] * space.dim,
        "complex": centre + 1j,
        "ragged": [[0.0], [0.0, 1.0]],
        "a dictionary": {"p": centre},
        "masked": np.ma.masked_array(centre, mask=first),
    }


def check_bad_outcomes_change_nothing(make: Make, outcomes: Array) -> None:
    """A bad outcome raises a `TreeCalError` that names the round, and the state is bit for bit what it was."""
    forecaster = make()
    for t, _ in enumerate(_play(forecaster, outcomes[:4])):
        before = _state(forecaster)
        announced = forecaster.predict()
        for what, bad in bad_outcomes(forecaster.space).items():
            message = _refusal(forecaster, bad)
            assert message is not None, f"an outcome that is {what} was accepted"
            assert f"round {t + 1}" in message, f"{what}: the message does not name round {t + 1}: {message}"
            assert _state(forecaster) == before, f"an outcome that is {what} changed the state"
            assert forecaster.predict() == announced, f"an outcome that is {what} changed the forecast"


def check_snapshots_resume(make: Make, outcomes: Array) -> None:
    """A forecaster saved and loaded, before or after it predicts, goes on exactly as the one that was not."""
    for stop in {0, 1, len(outcomes) // 2}:
        for peek in (False, True):
            forecaster = make()
            for _ in _play(forecaster, outcomes[:stop]):
                pass
            if peek:
                forecaster.predict()
            again = _copy(make, forecaster)
            for (a, _), (b, _) in zip(_play(forecaster, outcomes[stop:]), _play(again, outcomes[stop:]), strict=True):
                assert a == b, f"a snapshot taken after {stop} rounds went another way"


def check_labels_only_add_error(make: Make, outcomes: Array) -> None:
    """The labelled error is at least the unlabelled one in every norm (Jensen)."""
    ledger = _ledger(make(), outcomes)
    for norm in ("l1", "l2", "linf"):
        assert ledger.error(norm, per_node=True) >= ledger.error(norm) - 1e-12, f"labelled < unlabelled in {norm}"


def check_calibration_is_swap_regret(make: Make, outcomes: Array) -> None:
    """`Cal^{D_R}` is the full swap regret of the losses `D_R(y_t|·)` (Lemma 2.2), here for `R = ‖·‖₂²`."""
    forecaster, R = make(), SquaredEuclidean()
    rounds = list(_play(forecaster, outcomes))
    points = np.unique(np.concatenate([x.points + 0.0 for x, _ in rounds]), axis=0)
    regret = 0.0
    for p in points:
        weights = np.array([x.weights[(x.points == p).all(axis=1)].sum() for x, _ in rounds])
        if weights.sum() > 0:
            best = weights @ outcomes / weights.sum()
            regret += float(weights @ (R.between(outcomes, p) - R.between(outcomes, best)))
    error = _ledger(make(), outcomes).error(R, total=True)
    assert abs(error - regret) <= 1e-9 * max(1.0, abs(regret)), f"error {error}, swap regret {regret}"


def check_classes_are_interchangeable(make: Make, outcomes: Array) -> None:
    """On the simplex, from a symmetric start, renaming the classes renames the forecasts and does nothing else.

    A forecaster that cannot promise it says so in `Forecaster.symmetric`.
    """
    forecaster, renamed = make(), make()
    if not (isinstance(forecaster.space, Simplex) and forecaster.symmetric) or np.ptp(forecaster.predict().mean) > 0:
        return
    order = np.roll(np.arange(forecaster.space.dim), 1)
    for y in outcomes:
        a, b = forecaster.predict(), renamed.predict()
        # As distributions: the order in which points are listed may follow the classes.
        ours, theirs = _sorted_rows(a.points[:, order], a.weights), _sorted_rows(b.points, b.weights)
        assert np.array_equal(ours, theirs), "renaming the classes changed a point or its weight"
        forecaster.update(y)
        renamed.update(y[order])


CHECKS: tuple[Check, ...] = (
    check_forecasts_are_distributions,
    check_predict_repeats,
    check_past_forecasts_stay,
    check_rounds_count_up,
    check_same_past_same_forecast,
    check_outcomes_are_not_kept,
    check_outcomes_of_any_form,
    check_bad_outcomes_change_nothing,
    check_snapshots_resume,
    check_labels_only_add_error,
    check_calibration_is_swap_regret,
    check_classes_are_interchangeable,
)
"""Every check, in the order `check_forecaster` runs them."""


def _play(forecaster: Forecaster, outcomes: Array) -> Any:
    for y in outcomes:
        x = forecaster.predict()
        assert isinstance(x, Forecast), f"predict() returned {type(x).__name__}, expected a Forecast"
        yield x, y
        forecaster.update(y)


def _refusal(forecaster: Forecaster, bad: Any) -> str | None:
    """Return the message with which an outcome is refused, or None if it is taken."""
    try:
        forecaster.update(bad)
    except TreeCalError as error:
        return str(error)
    return None


def _ledger(forecaster: Forecaster, outcomes: Array) -> Ledger:
    ledger = Ledger(forecaster.space)
    for x, y in _play(forecaster, outcomes):
        ledger.record(x, y)
    return ledger


def _state(forecaster: Forecaster) -> Any:
    """Return the state as something that compares bit for bit."""
    return {
        key: (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for key, value in forecaster.get_state().items()
    }


def _sorted_rows(points: Array, weights: Array) -> Array:
    rows = np.column_stack([points + 0.0, weights])
    return rows[np.lexsort(rows.T[::-1])]


def _copy(make: Make, forecaster: Forecaster) -> Forecaster:
    """Return the forecaster through a snapshot; one of a class that is not ours, through its state."""
    try:
        return loads(dumps(forecaster), space=forecaster.space)  # type: ignore[no-any-return]
    except SnapshotError:
        again = make()
        again.set_state(forecaster.get_state())
        return again
