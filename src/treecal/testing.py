"""The contracts of forecasters and correctors, as checks to run on any of them: ours and yours.

`check_forecaster(make)` and `check_corrector(make)` run them all; `CHECKS` and `CORRECTOR_CHECKS` list them one by one
for a parametrised test. A check takes `make` and the outcomes to play, and for correctors the forecasts to correct.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.correctors import Corrector
from treecal.exceptions import ForecastError, OutcomeError, SnapshotError, TreeCalError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster
from treecal.geometry import LARGEST, Cdf, ConvexSet, Simplex, SquaredEuclidean
from treecal.state import dumps, loads
from treecal.streams import play

Make = Callable[[], Any]
Check = Callable[..., None]
Round = tuple[tuple[Array, ...], Array]


def check_forecaster(make: Callable[[], Forecaster], *, outcomes: Array | None = None) -> None:
    """Run every check on a forecaster; the first that fails raises an `AssertionError` that says what was expected.

    Parameters
    ----------
    make
        Makes a new forecaster, the same one each time; if it draws, with a new generator of the same seed.
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


def check_corrector(
    make: Callable[[], Corrector], *, outcomes: Array | None = None, forecasts: Array | None = None
) -> None:
    """Run every check on a corrector; the first that fails raises an `AssertionError` that says what was expected.

    Parameters
    ----------
    make
        Makes a new corrector, the same one each time.
    outcomes, forecasts
        Rounds to play, `(rounds, dim)` both, at least four. By default 60 drawn from the set, which must then be able
        to sample.

    Examples
    --------
    >>> import treecal as tc
    >>> check_corrector(lambda: tc.Recalibrator(tc.Simplex(3)))
    """
    rng = np.random.default_rng(0)
    outcomes = sample_outcomes(make().space, 60, rng) if outcomes is None else outcomes
    forecasts = sample_outcomes(make().space, len(outcomes), rng) if forecasts is None else forecasts
    for check in CORRECTOR_CHECKS:
        check(make, outcomes, forecasts)


def sample_outcomes(space: ConvexSet, rounds: int, rng: np.random.Generator) -> Array:
    """Return outcomes to test with: points of the set, every second one extreme where extremes can be found."""
    outcomes = np.array(space.sample(rng, rounds))
    with contextlib.suppress(UnsupportedError):
        outcomes[::2] = space.minimise(rng.standard_normal((len(outcomes[::2]), space.dim)))
    return outcomes


def check_forecasts_are_distributions(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """Weights are non-negative with sum 1, points lie in the set, and nothing announced can be written to."""
    forecaster = make()
    for x, _ in _play(forecaster, _rounds(outcomes, forecasts)):
        n = len(x)
        assert x.points.shape == (n, forecaster.space.dim), f"points have shape {x.points.shape}"
        assert x.weights.shape == (n,), f"weights have shape {x.weights.shape}"
        assert x.weights.min() >= 0, "a weight is negative"
        assert abs(x.weights.sum() - 1) < 1e-12, f"weights sum to {x.weights.sum()!r}"
        assert forecaster.space.contains(x.points).all(), "a point lies outside the set"
        for array in (x.points, x.weights, x.nodes):
            assert array is None or not array.flags.writeable, "a forecast can be written to"


def check_predict_repeats(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """`predict` twice without an `update` gives the same forecast, and moves nothing."""
    once = make()
    twice = make()
    for given, y in _rounds(outcomes, forecasts):
        first = twice.predict(*given)
        assert twice.predict(*given) == first == once.predict(*given), "predict() twice gave two forecasts"
        once.update(y)
        twice.update(y)


def check_past_forecasts_stay(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """A forecast once announced never changes."""
    kept = [(x, x.points.copy(), x.weights.copy()) for x, _ in _play(make(), _rounds(outcomes, forecasts))]
    for x, points, weights in kept:
        assert np.array_equal(x.points, points), "an old forecast's points changed"
        assert np.array_equal(x.weights, weights), "an old forecast's weights changed"


def check_rounds_count_up(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """`rounds` is the number of outcomes seen."""
    forecaster = make()
    for t, _ in enumerate(_play(forecaster, _rounds(outcomes, forecasts))):
        assert forecaster.rounds == t, f"rounds is {forecaster.rounds} in round {t + 1}"


def check_same_past_same_forecast(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """Two made in the same way that see the same rounds announce the same: nothing is hidden or random."""
    rounds = _rounds(outcomes, forecasts)
    for (a, _), (b, _) in zip(_play(make(), rounds), _play(make(), rounds), strict=True):
        assert a == b, "two equal forecasters gave two forecasts"


def check_arrays_are_not_kept(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """The caller may reuse the arrays it passed in."""
    plain = make()
    reused = make()
    for given, y in _rounds(outcomes, forecasts):
        lent = [np.array(b) for b in given]
        buffer = np.array(y)
        x = plain.predict(*given)
        again = reused.predict(*lent)
        for b in lent:
            b[:] = np.nan
        assert x == again, "a reference to the caller's array was kept"
        plain.update(y)
        reused.update(buffer)
        buffer[:] = np.nan


def check_arrays_of_any_form(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """Lists, strided views and other byte orders count as the vectors they hold."""
    plain = make()
    varied = make()
    forms: list[Callable[[Array], Any]] = [list, lambda y: np.repeat(y, 2)[::2], lambda y: y.astype(">f8")]
    for t, (given, y) in enumerate(_rounds(outcomes, forecasts)):
        form = forms[t % 3]
        assert plain.predict(*given) == varied.predict(*map(form, given)), "the form of an array made a difference"
        plain.update(y)
        varied.update(form(y))


def bad_outcomes(space: ConvexSet) -> dict[str, Any]:
    """Return things that are neither outcomes nor point forecasts, by what makes them invalid."""
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
        "a number": np.nan if isinstance(space, Cdf) else 0.5,  # where numbers are outcomes
        "a matrix": centre[None],
        "objects": np.array([object()] * space.dim),
        "an integer too large": [10**400] * space.dim,
        "complex": centre + 1j,
        "ragged": [[0.0], [0.0, 1.0]],
        "a dictionary": {"p": centre},
        "masked": np.ma.masked_array(centre, mask=first),
    }


def check_bad_outcomes_change_nothing(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """An invalid outcome raises a `TreeCalError` that names the round, and the state is bit for bit what it was."""
    forecaster = make()
    for t, (given, y) in enumerate(_rounds(outcomes[:4], forecasts)):
        announced = forecaster.predict(*given)
        before = _state(forecaster)
        for what, bad in bad_outcomes(forecaster.space).items():
            _check_refused(forecaster.update, bad, TreeCalError, f"round {t + 1}", f"an outcome that is {what}")
            assert _state(forecaster) == before, f"an outcome that is {what} changed the state"
            assert forecaster.predict(*given) == announced, f"an outcome that is {what} changed the forecast"
        forecaster.update(y)


def check_states_are_kept(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """A state never changes once it is taken, and can be restored any number of times."""
    rounds = _rounds(outcomes, forecasts)
    for stop in {0, 1, len(rounds) // 2}:
        forecaster = _played(make(), rounds[:stop])
        given, _ = rounds[stop]
        announced = forecaster.predict(*given)
        state = forecaster.get_state()
        before = _bytes(state)
        for _ in range(2):  # the second time from a state that was set
            for _ in _play(forecaster, rounds[stop:]):
                assert _bytes(state) == before, f"a state taken after {stop} rounds changed when more were played"
            forecaster.set_state(state)
            assert forecaster.rounds == stop, f"restored after {stop} rounds, rounds is {forecaster.rounds}"
            assert forecaster.predict(*given) == announced, f"restored after {stop} rounds, it forecasts differently"


def check_copies_are_independent(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """`copy.copy` and `copy.deepcopy` give one that continues in the same way, and neither affects the other."""
    rounds = _rounds(outcomes, forecasts)
    half = len(rounds) // 2
    for copied in (copy.copy, copy.deepcopy):
        forecaster = _played(make(), rounds[:half])
        forecaster.predict(*rounds[half][0])
        again = copied(forecaster)
        before = _state(forecaster)
        ahead = [x for x, _ in _play(again, rounds[half:])]
        assert _state(forecaster) == before, f"what a copy by copy.{copied.__name__} learned changed the original"
        behind = [x for x, _ in _play(forecaster, rounds[half:])]
        assert ahead == behind, f"a copy by copy.{copied.__name__} forecasts differently"


def check_snapshots_resume(make: Make, outcomes: Array, forecasts: Array | None = None) -> None:
    """Saved and loaded, before or after `predict`, it continues exactly like the original."""
    rounds = _rounds(outcomes, forecasts)
    for stop in {0, 1, len(rounds) // 2}:
        for peek in (False, True):
            forecaster = _played(make(), rounds[:stop])
            start = stop
            if peek:
                forecaster.predict(*rounds[stop][0])
            again = _copy(make, forecaster)
            if peek and forecasts is not None:  # the forecast that awaits its outcome is part of the state
                for each in (forecaster, again):
                    each.update(outcomes[stop])
                start += 1
            for (a, _), (b, _) in zip(_play(forecaster, rounds[start:]), _play(again, rounds[start:]), strict=True):
                assert a == b, f"loaded from a snapshot after {stop} rounds, it forecasts differently"


def check_one_round_is_open(make: Make, outcomes: Array, forecasts: Array) -> None:
    """Another forecast is refused until `update` or `cancel`, and a round that is cancelled changes nothing."""
    plain = make()
    fickle = make()
    for b, y, other in zip(forecasts, outcomes, forecasts[::-1], strict=True):
        x = plain.predict(b)
        fickle.predict(other)
        if not np.array_equal(other, b):
            place = f"round {fickle.rounds + 1}"
            _check_refused(fickle.predict, b, ForecastError, place, "a second forecast before the outcome")
        fickle.cancel()
        fickle.cancel()
        assert fickle.predict(b) == x, "a forecast that had no outcome changed the next"
        plain.update(y)
        fickle.update(y)
    assert _state(plain) == _state(fickle), "a forecast that had no outcome changed the state"


def check_batches_are_the_loop(make: Make, outcomes: Array, forecasts: Array) -> None:
    """`predict_many` and `update_many` announce and learn what a loop does, bit for bit; `learn` learns as `update`."""
    loop = make()
    batch = make()
    late = make()
    announced = []
    for x, _ in _play(loop, _rounds(outcomes, forecasts)):
        announced.append(x.mean)
    half = len(forecasts) // 2
    for rows in (slice(0, half), slice(half, None)):
        first = batch.predict_many(forecasts[rows])[:1]
        found = batch.update_many(forecasts[rows], outcomes[rows])
        assert np.array_equal(first, found[:1]), "predict_many is not what is announced"
        assert np.array_equal(found, np.array(announced)[rows]), "update_many announces other forecasts than the loop"
    assert _state(batch) == _state(loop), "update_many learns other than the loop"
    for b, y in zip(forecasts, outcomes, strict=True):
        late.learn(b, y)
    assert _state(late) == _state(loop), "learn learns other than predict and update"


def check_outcomes_need_forecasts(make: Make, outcomes: Array, forecasts: Array) -> None:
    """An outcome before its forecast raises an `OutcomeError` that names the round, and changes nothing."""
    corrector = make()
    for t, (b, y) in enumerate(zip(forecasts[:4], outcomes[:4], strict=True)):
        before = _state(corrector)
        _check_refused(corrector.update, y, OutcomeError, f"round {t + 1}", "an outcome without a forecast")
        assert _state(corrector) == before, "an outcome without a forecast changed the state"
        corrector.predict(b)
        corrector.update(y)


def check_bad_forecasts_change_nothing(make: Make, outcomes: Array, forecasts: Array) -> None:
    """An invalid forecast raises a `ForecastError` that names the round, and the state is bit for bit what it was."""
    corrector = make()

    def refuses_all() -> None:
        before = _state(corrector)
        for what, bad in bad_outcomes(corrector.space).items():
            place = f"round {corrector.rounds + 1}"
            _check_refused(corrector.predict, bad, ForecastError, place, f"a forecast that is {what}")
            assert _state(corrector) == before, f"a forecast that is {what} changed the state"

    for b, y in zip(forecasts[:4], outcomes[:4], strict=True):
        refuses_all()
        x = corrector.predict(b)
        refuses_all()
        assert corrector.predict(b) == x, "an invalid forecast changed what is announced"
        corrector.update(y)


def check_nodes_only_add_error(make: Make, outcomes: Array) -> None:
    """The per-node error, the paper's labelled one, is at least the error by point in every norm (Jensen)."""
    ledger = play(make(), outcomes)
    for norm in ("l1", "l2", "linf"):
        per_node = ledger.error(norm, per_node=True)
        by_point = ledger.error(norm)
        assert per_node >= by_point - 1e-12, f"the error per node is {per_node}, by point {by_point} in {norm}"


def check_calibration_is_swap_regret(make: Make, outcomes: Array) -> None:
    """`Cal^{D_R}` is the full swap regret of the losses `D_R(y_t|·)` (Lemma 2.2), here for `R = ‖·‖₂²`."""
    forecaster = make()
    R = SquaredEuclidean()
    rounds = list(_play(forecaster, _rounds(outcomes)))
    points = np.unique(np.concatenate([x.points + 0.0 for x, _ in rounds]), axis=0)
    regret = 0.0
    for p in points:
        weights = np.array([x.weights[(x.points == p).all(axis=1)].sum() for x, _ in rounds])
        if weights.sum() > 0:
            best = weights @ outcomes / weights.sum()
            regret += float(weights @ (R.between(outcomes, p) - R.between(outcomes, best)))
    error = play(make(), outcomes).error(R, total=True)
    assert abs(error - regret) <= 1e-9 * max(1.0, abs(regret)), f"error {error}, swap regret {regret}"


def check_classes_are_interchangeable(make: Make, outcomes: Array) -> None:
    """On the simplex, from a symmetric start, permuting the classes permutes the forecasts.

    Skipped where `Forecaster.symmetric` is False.
    """
    forecaster = make()
    permuted = make()
    if not (isinstance(forecaster.space, Simplex) and forecaster.symmetric) or np.ptp(forecaster.predict().mean) > 0:
        return
    order = np.roll(np.arange(forecaster.space.dim), 1)
    for y in outcomes:
        a = forecaster.predict()
        b = permuted.predict()
        # As distributions: the order in which points are listed may follow the classes.
        ours = _sorted_rows(a.points[:, order], a.weights)
        theirs = _sorted_rows(b.points, b.weights)
        assert np.array_equal(ours, theirs), "permuting the classes changed a point or its weight"
        forecaster.update(y)
        permuted.update(y[order])


_SHARED: tuple[Check, ...] = (
    check_forecasts_are_distributions,
    check_predict_repeats,
    check_past_forecasts_stay,
    check_rounds_count_up,
    check_same_past_same_forecast,
    check_arrays_are_not_kept,
    check_arrays_of_any_form,
    check_bad_outcomes_change_nothing,
    check_snapshots_resume,
    check_states_are_kept,
    check_copies_are_independent,
)

CHECKS: tuple[Check, ...] = (
    *_SHARED,
    check_nodes_only_add_error,
    check_calibration_is_swap_regret,
    check_classes_are_interchangeable,
)
"""Every check, in the order `check_forecaster` runs them."""

CORRECTOR_CHECKS: tuple[Check, ...] = (
    *_SHARED,
    check_one_round_is_open,
    check_batches_are_the_loop,
    check_outcomes_need_forecasts,
    check_bad_forecasts_change_nothing,
)
"""Every check, in the order `check_corrector` runs them."""


def _rounds(outcomes: Array, forecasts: Array | None = None) -> list[Round]:
    """Return for each round the arguments of `predict`, a forecast or none, and the outcome."""
    return [(() if forecasts is None else (forecasts[t],), y) for t, y in enumerate(outcomes)]


def _play(forecaster: Any, rounds: list[Round]) -> Iterator[tuple[Forecast, Array]]:
    for given, y in rounds:
        x = forecaster.predict(*given)
        assert isinstance(x, Forecast), f"predict() returned {type(x).__name__}, expected a Forecast"
        yield x, y
        forecaster.update(y)


def _played(forecaster: Any, rounds: list[Round]) -> Any:
    """Return the forecaster or corrector after these rounds."""
    for _ in _play(forecaster, rounds):
        pass
    return forecaster


def _check_refused(act: Callable[[Any], object], bad: Any, error: type[TreeCalError], place: str, what: str) -> None:
    message = None
    try:
        act(bad)
    except error as refusal:
        message = str(refusal)
    assert message is not None, f"{what} was accepted"
    assert place in message, f"{what}: the message does not name {place}: {message}"


def _bytes(state: Any) -> Any:
    """Return the state as something that compares bit for bit and never changes."""
    if isinstance(state, np.ndarray):
        return state.dtype.str, state.shape, state.tobytes()
    return {key: _bytes(value) for key, value in state.items()} if isinstance(state, dict) else copy.deepcopy(state)


def _state(forecaster: Any) -> Any:
    return _bytes(forecaster.get_state())


def _sorted_rows(points: Array, weights: Array) -> Array:
    rows = np.column_stack([points + 0.0, weights])
    return rows[np.lexsort(rows.T[::-1])]


def _copy(make: Make, forecaster: Any) -> Any:
    """Return a copy through a snapshot; through its state, if the class is not ours."""
    try:
        return loads(dumps(forecaster), space=forecaster.space)
    except SnapshotError:
        again = make()
        again.set_state(forecaster.get_state())
        return again
