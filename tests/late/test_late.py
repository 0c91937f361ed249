"""Late outcomes: the example that went wrong, outcomes on time, errors that change nothing, time, limits, memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

import treecal as tc
from tests.attack.subjects import kept
from tests.late.things import POOLS, SHARED, THINGS, asked, outcomes, points
from treecal.exceptions import ForecastError, HorizonError, IdError, OutcomeError, ParameterError, UnsupportedError
from treecal.late import _rounds
from treecal.state import dumps, loads


def test_a_right_model_stays_right_with_outcomes_one_round_late() -> None:
    rng, late = np.random.default_rng(0), tc.Late(tc.PlattScaling(tc.Simplex(2), scores="exact"))
    P = rng.random(5000)
    Y = rng.random(5000) < P
    announced = []
    for i in range(5000):
        announced.append(late.predict([1 - P[i], P[i]], id=i).mean)
        if i:
            late.update(i - 1, int(Y[i - 1]))
    assert abs(late.predict([0.05, 0.95], id="last").mean[1] - 0.95) < 0.02
    report, truth = late.report(), np.eye(2)[Y.astype(int)][:-1]
    assert report.rounds == 4999
    assert report.before.brier == pytest.approx(((np.column_stack([1 - P, P])[:-1] - truth) ** 2).sum(axis=1).mean())
    assert report.after.brier == pytest.approx(((np.array(announced)[:-1] - truth) ** 2).sum(axis=1).mean())
    assert late.ledgers["after"].rounds == 4999


@pytest.mark.parametrize("name", THINGS)
def test_outcomes_on_time_are_as_without(name: str) -> None:
    thing, late = THINGS[name](), tc.Late(THINGS[name]())
    ledger, space = tc.Ledger(thing.space), thing.space
    for t, (b, y) in enumerate(zip(points(space, 60, 1), outcomes(space, 60, 2), strict=True)):
        x = thing.predict(*asked(thing, b))
        assert late.predict(*asked(thing, b), id=t) == x
        thing.update(y)
        late.update(t, y)
        ledger.record(x, y)
    assert late.copies == (name in POOLS)
    if isinstance(thing, tc.Corrector):
        ours, theirs = late.report(), thing.report()
        assert (ours.rounds, ours.before, ours.after, ours.mean) == (60, theirs.before, theirs.after, theirs.mean)
    else:
        assert kept(late.ledger) == kept(ledger)
    if name in POOLS and name != "trees in groups":
        norm = space.default_norm
        late_bound, bound = (each.bound for each in (late.certificate(norm), thing.certificate(norm, rounds=60)))  # type: ignore[union-attr]
        # Of a guard it is known how many rounds each part had.
        assert late_bound <= bound + 1e-12 if type(thing) is tc.Guarded else late_bound == pytest.approx(bound)


@pytest.mark.parametrize("name", THINGS)
def test_the_report_is_of_what_was_announced_then(name: str) -> None:
    late, rng = tc.Late(THINGS[name]()), np.random.default_rng(3)
    space, thing = late.space, late.thing
    waiting: list[Any] = []
    scores: list[float] = []
    ledger = tc.Ledger(space)
    for t, b in enumerate(points(space, 80, 1)):
        waiting.append((t, late.predict(*asked(thing, b), id=t)))
        if len(waiting) > 5:
            at, x = waiting.pop(int(rng.integers(len(waiting))))
            y = outcomes(space, 80, 2)[at]
            late.update(at, y)
            scores.append(float(x.weights @ ((x.points - y) ** 2).sum(axis=1)))
            ledger.record(x, y)
    if isinstance(thing, tc.Corrector):
        assert late.report().after.brier == pytest.approx(np.mean(scores))
        if thing.scores == "exact":
            assert late.ledgers["after"].error("l1") == pytest.approx(ledger.error("l1"))
    else:
        assert late.ledger.error("l1") == pytest.approx(ledger.error("l1"))
    assert late.copies == 6 * (name in POOLS)


@pytest.mark.parametrize("name", THINGS)
def test_a_snapshot_with_rounds_that_wait_goes_on_bit_for_bit(name: str) -> None:
    late = tc.Late(THINGS[name](), limit=7)
    space, thing = late.space, late.thing
    for t, (b, y) in enumerate(zip(points(space, 60, 1), outcomes(space, 60, 2), strict=True)):
        late.predict(*asked(thing, b), id=t, due=t + 6.0, now=t)
        if t % 3 == 2:
            late.update(t - 2, y)
            late.predict(*asked(thing, b), id=f"{t}")
        if t % 7 == 3:
            again = loads(dumps(late))
            assert kept(again) == kept(late)
            assert dumps(again) == dumps(late)
            late = again
    assert late.void > 10
    assert len(late.pending) == 7


def everything_invalid(late: tc.Late, thing: Any, b: Any, y: Any) -> list[tuple[type[Exception], Any]]:
    given, other = asked(thing, b), next(each for each in outcomes(late.space, 20, 0) if not np.array_equal(each, y))
    wrong = np.full(late.space.dim, 7.0)
    calls: list[tuple[type[Exception], Any]] = [
        (ParameterError, lambda: late.predict(*given, id=1.5)),  # type: ignore[arg-type]
        (ParameterError, lambda: late.predict(*given, id=True)),
        (ParameterError, lambda: late.predict(*given, id=None)),  # type: ignore[arg-type]
        (ParameterError, lambda: late.predict(*given, id=2**63)),
        (ParameterError, lambda: late.predict(*given, id="n", due=np.nan, now=50)),
        (ParameterError, lambda: late.predict(*given, id="n", due=20, now=50)),
        (ParameterError, lambda: late.predict(*given, id="n", now="noon")),  # type: ignore[arg-type]
        (IdError, lambda: late.predict(*given, id="done", now=50)),
        (IdError, lambda: late.predict(*given, id="waits", now=50)),  # void by then
        (IdError, lambda: late.predict(*given, id="waits", due=40, now=20)),
        (IdError, lambda: late.predict_many([b, b] if given else None, ids=["n", "waits"], due=40)),
        (ParameterError, lambda: late.predict_many([b] if given else None, ids="n")),
        (ParameterError, lambda: late.predict_many([b] if given else None, ids=5)),  # type: ignore[arg-type]
        (ParameterError, lambda: late.predict_many([b] if given else None, ids={"n"})),
        (ParameterError, lambda: late.predict_many([b] if given else None, ids=np.array(5))),
        (ParameterError, lambda: late.predict(*given, id=())),
        (ParameterError, lambda: late.predict(*given, id=("a", 1.5))),  # type: ignore[arg-type]
        (OutcomeError, lambda: late.update("waits", wrong, now=50)),
        (OutcomeError, lambda: late.update("waits", [np.nan] * late.space.dim)),
        (ParameterError, lambda: late.update("waits", y, weight=-1.0)),
        (ParameterError, lambda: late.update("waits", y, now=np.inf)),
        (IdError, lambda: late.update("nobody", y, now=50)),
        (IdError, lambda: late.update(1, other, now=50)),
        (IdError, lambda: late.update_many(["waits", "waits"], [y, other], now=20)),
        (IdError, lambda: late.update_many(["waits", "done"], [y, other], now=50)),
        (ParameterError, lambda: late.update_many("waits", [y])),
        (ParameterError, lambda: late.update_many(["waits"], "y")),
        (ParameterError, lambda: late.update_many(["waits"], 3)),
        (ParameterError, lambda: late.update_many(["waits"], [y], weights=3.0)),
        (ParameterError, lambda: late.update_many(["waits"], [y], weights=[np.nan])),
        (ParameterError, lambda: late.update_many(["waits"], [y], strict=1)),  # type: ignore[arg-type]
        (ParameterError, lambda: late.set_clock(np.nan)),
        (ParameterError, lambda: late.set_clock(None)),  # type: ignore[arg-type]
        (IdError, lambda: late.update_many(["waits", "nobody"], [y, y])),
        (OutcomeError, lambda: late.update_many(["waits", "too"], [y, wrong])),
        (ParameterError, lambda: late.update_many(["waits", "too"], [y])),
        (IdError, lambda: late.amend("waits", y)),
        (IdError, lambda: late.history("waits")),
        (IdError, lambda: late.amend("nobody", y)),
        (OutcomeError, lambda: late.amend("done", wrong)),
        (ParameterError, lambda: late.expire(np.nan)),
    ]
    if given:
        calls += [
            (ForecastError, lambda: late.predict(wrong, id="n", now=50)),
            (
                IdError,
                lambda: late.predict_many(
                    [b, next(p for p in points(late.space, 20, 0) if (p != b).any())], ids=[9, 9]
                ),
            ),
            (ParameterError, lambda: late.predict(id="n")),
            (ForecastError, lambda: late.predict_many([b, wrong], ids=["n", "m"])),
            (ParameterError, lambda: late.predict_many([b], ids=["n", "m"])),
            (UnsupportedError, lambda: late.predict(b, id="n", group=object())),
        ]
    else:
        calls += [
            (ParameterError, lambda: late.predict(b, id="n")),
            (UnsupportedError, lambda: late.update("waits", y, weight=2.0)),
        ]
    return calls


@pytest.mark.parametrize("name", THINGS)
def test_invalid_input_changes_nothing(name: str) -> None:
    late = tc.Late(THINGS[name]())
    thing, (b, y) = late.thing, (points(late.space, 1, 0)[0], outcomes(late.space, 1, 0)[0])
    for each in ("done", "waits", "too", 1):
        late.predict(*asked(thing, b), id=each, due=30, now=10)
    late.update_many(["done", 1], [y, y])
    before = kept(late)
    for number, (error, call) in enumerate(everything_invalid(late, thing, b, y)):
        with pytest.raises(error):
            call()
        assert kept(late) == before, number


def test_what_cannot_be_wrapped_is_refused() -> None:
    played = tc.TreeCal(tc.Simplex(2))
    played.update([1, 0])
    for thing in (played, tc.Ledger(tc.Simplex(2)), None):
        with pytest.raises(ParameterError, match="thing is"):
            tc.Late(thing)  # type: ignore[arg-type]
    for wrong in ({"limit": 0}, {"limit": 1.5}, {"ledger": 1}):
        with pytest.raises(ParameterError):
            tc.Late(tc.TreeCal(tc.Simplex(2)), **wrong)


def test_a_codebook_learns_outcomes_as_they_come() -> None:
    """It has no certificate that a pool would keep, and copies that each learn a part of the rounds learn little."""
    rng, rounds, lag = np.random.default_rng(0), 1500, 50
    y = (rng.random(rounds) < 0.5 + 0.45 * np.sin(np.arange(rounds) / 200)).astype(int)
    briers = []
    for f in (tc.Tracker(tc.Simplex(2)), tc.forecasters.Codebook(tc.Tracker(tc.Simplex(2)))):
        late, brier = tc.Late(f), 0.0
        for t in range(rounds):
            brier += float(((np.eye(2)[y[t]] - late.predict(id=t).mean) ** 2).sum()) / rounds
            if t >= lag:
                late.update(t - lag, y[t - lag])
        assert late.copies == 0
        briers.append(brier)
    assert briers[1] < briers[0] + 0.02


def test_a_corrector_may_have_learned_before() -> None:
    space = tc.Simplex(2)
    fitted = tc.PlattScaling(space).fit(points(space, 30, 0), outcomes(space, 30, 1))
    late = tc.Late(fitted)
    b = [0.25, 0.75]
    assert late.predict(b, id=1) == fitted.predict(b)
    late.update(1, 0)
    again = loads(dumps(late))
    assert (again.rounds, again.thing.rounds, again.report().rounds) == (1, 31, 1)
    assert fitted.rounds == 30  # a copy is played


def test_time_is_what_it_is_told() -> None:
    late = tc.Late(tc.TreeCal(tc.Simplex(2)))
    with pytest.raises(ParameterError, match="due= needs the current time"):
        late.predict(id="a", due=5)
    late.predict(id="a", due=5, now=0)
    late.predict(id="b", due=5)  # since it is known by now
    late.predict(id="c")
    late.update("a", 1, now=5)  # at the last moment
    assert late.expire(4.0) == []  # time does not go back
    assert late.now == 5
    with pytest.raises(IdError, match="is void") as caught:
        late.update("b", 1, now=5.1)
    assert caught.value.reason == "void"
    assert late.pending == ["c"]
    assert late.counts == (3, 1, 1, 1, 0)
    late.update("c", 0, now=1e9)


def test_an_id_asked_for_again_keeps_its_due() -> None:
    late = tc.Late(tc.TreeCal(tc.Simplex(2)))
    late.predict(id="a", due=5, now=0)
    x = late.predict(id="a", due=5, now=1)
    assert late.predict(id="a", now=2) == x
    for due, match in ((9, "until 5, and now due is 9"), (4, "until 5, and now due is 4")):
        with pytest.raises(IdError, match=match) as caught:
            late.predict(id="a", due=due)
        assert caught.value.reason == "taken"
    late.predict(id="b")
    with pytest.raises(IdError, match="at any time, and now due is 9"):
        late.predict_many(ids=["c", "b"], due=9)
    assert late.pending == ["a", "b"]
    assert late.expire(6) == ["a"]


def test_time_passes_when_an_id_is_asked_for_again() -> None:
    late = tc.Late(tc.TreeCal(tc.Simplex(2)))
    late.predict_many(ids=["a", "b"], due=5, now=0)
    late.predict(id="c", now=1)
    late.predict(id="c", now=4)
    assert late.now == 4
    with pytest.raises(IdError, match="'a' is void by then"):
        late.predict(id="a", now=100)
    assert (late.now, late.pending) == (4, ["a", "b", "c"])  # an error changes nothing
    late.predict_many(ids=["c", "d"], now=100)
    assert (late.now, late.pending, late.void) == (100, ["c", "d"], 2)


def test_a_wrong_clock_is_set_back() -> None:
    late = tc.Late(tc.TreeCal(tc.Simplex(2)))
    late.predict(id="a", due=5, now=0)
    late.predict(id="b", due=6e9)
    late.expire(1e9)  # milliseconds in place of seconds
    with pytest.raises(ParameterError, match=r"set_clock\(now\)"):
        late.predict(id="c", due=7, now=1)
    late.set_clock(1)
    late = loads(dumps(late))
    late.predict(id="c", due=7, now=1)
    assert (late.now, late.pending, late.void) == (1, ["b", "c"], 1)
    late.set_clock(8)  # forward, too
    assert (late.now, late.pending, late.void) == (8, ["b"], 2)


def test_the_oldest_is_void_beyond_the_limit_and_its_copy_is_free() -> None:
    late = tc.Late(tc.TreeCal(tc.Simplex(2)), limit=3)
    late.predict_many(ids=range(10))
    assert late.pending == [7, 8, 9]
    assert (late.void, late.copies) == (7, 3)
    late.update_many([9, 7], [0, 1])
    assert late.rounds == 2


def test_many_at_once_equal_one_after_the_other() -> None:
    for name in THINGS:
        one, many = (tc.Late(THINGS[name]()) for _ in range(2))
        space, given = one.space, isinstance(one.thing, tc.Corrector)
        P, Y, ids = points(space, 30, 0), outcomes(space, 30, 1), [*range(15), *map(str, range(15))]
        means = many.predict_many(np.array(P) if given else None, ids=ids)
        assert np.array_equal(
            means, [one.predict(*asked(one.thing, b), id=i).mean for b, i in zip(P, ids, strict=True)]
        )
        order = np.random.default_rng(2).permutation(30)
        many.update_many([ids[i] for i in order], [Y[i] for i in order])
        for i in order:
            one.update(ids[i], Y[i])
        assert kept(one) == kept(many)


@pytest.mark.parametrize("make", [tc.VectorScaling, tc.TemperatureScaling])
@pytest.mark.parametrize("weighted", [False, True])
def test_scalings_in_batches_are_the_loop_bit_for_bit(make: Any, weighted: bool) -> None:
    """With copies that forget, in batches of several sizes, out of order."""
    space, rng, n = tc.Simplex(3), np.random.default_rng(5), 300
    P, Y, w = rng.dirichlet(np.ones(3), n), rng.integers(3, size=n), rng.choice([0.5, 1.0, 3.0], n)
    one, many = tc.Late(make(space)), tc.Late(make(space))
    start = 0
    for size in (1, 2, 70, 127, 100):
        rows = np.arange(start, start := start + size)
        means = many.predict_many(P[rows], ids=rows)
        assert np.array_equal(means, [one.predict(P[i], id=int(i)).mean for i in rows])
        order = rng.permutation(rows)
        assert set(many.update_many(order, Y[order], weights=w[order] if weighted else None)) == {"learned"}
        for i in order:
            one.update(int(i), int(Y[i]), weight=float(w[i]) if weighted else 1.0)
    assert many.rounds == n
    assert kept(one) == kept(many)
    assert dumps(one) == dumps(many)


def rounds_of(late: tc.Late, b: Any, ids: Any, **given: Any) -> Any:
    """Return what predict in a loop announces, or the kind of its error."""
    try:
        return [late.predict(*asked(late.thing, b), id=each, **given).mean.tolist() for each in ids]
    except (IdError, ParameterError) as error:
        return type(error)


@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 6), max_size=7),
    st.lists(st.integers(0, 6), max_size=7),
    st.sampled_from([None, 1.0, 5.0]),
    st.sampled_from([None, 2.0, 9.0]),
    st.sampled_from(["platt", "tree"]),
)
def test_predict_many_is_the_loop(
    limit: int, first: list[int], then: list[int], now: float | None, due: float | None, name: str
) -> None:
    """With a limit, dues and ids that repeat; where the loop raises, nothing has changed."""
    one, many = (tc.Late(THINGS[name](), limit=limit) for _ in range(2))
    b = points(one.space, 1, 0)[0]
    for each in first:
        for late in (one, many):
            rounds_of(late, b, [each], due=each + 0.5, now=0)
    before = kept(many)
    try:
        found = many.predict_many([b] * len(then) if asked(one.thing, b) else None, ids=then, due=due, now=now)
    except (IdError, ParameterError):
        assert kept(many) == before
        assert rounds_of(one, b, then, due=due, now=now) in (IdError, ParameterError)
        return
    assert found.tolist() == rounds_of(one, b, then, due=due, now=now)
    if then:  # a loop over nothing does not hear what time it is
        assert kept(one) == kept(many)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), min_size=1, max_size=9),
    st.sampled_from([None, 1.0, 4.0]),
    st.sampled_from(["platt", "tracker", "tree", "guarded scaling"]),
    st.booleans(),
)
def test_update_many_is_the_loop(came: list[tuple[int, int]], now: float | None, name: str, strict: bool) -> None:
    """With duplicates, conflicts, unknown ids and void rounds; a strict one is all or nothing."""
    one, many = (tc.Late(THINGS[name]()) for _ in range(2))
    b, ys = points(one.space, 1, 0)[0], [outcomes(one.space, 9, 1)[0], outcomes(one.space, 9, 2)[0]]
    assert not np.array_equal(*ys)
    for late in (one, many):
        for each in range(5):
            late.predict(*asked(late.thing, b), id=each, due=each + 0.5, now=0)
        late.update(4, ys[0])
    before, found = kept(many), []
    for each, y in came:
        try:
            rounds = one.rounds
            one.update(each, ys[y], now=now)
            found.append("learned" if one.rounds > rounds else "replayed")
        except IdError as error:
            found.append("late" if error.reason == "void" else error.reason)
    ids, given = [each for each, _ in came], [ys[y] for _, y in came]
    if strict and {"conflict", "unknown"} & set(found):
        with pytest.raises(IdError) as caught:
            many.update_many(ids, given, now=now)
        assert caught.value.reason == next(each for each in found if each in ("conflict", "unknown"))
        assert kept(many) == before
        return
    assert many.update_many(ids, given, now=now, strict=strict) == found
    if now is not None:
        one.expire(now)  # which errors do not tell
    assert kept(one) == kept(many)


def test_an_outcome_again_is_harmless_also_after_an_amendment() -> None:
    late = tc.Late(tc.PlattScaling(tc.Simplex(2)))
    late.predict([0.25, 0.75], id="a")
    late.update("a", 1)
    late.amend("a", [0.5, 0.5])
    before = kept(late)
    for again in (1, [0, 1], [-0.0, 1.0], [0.5, 0.5]):
        late.update("a", again)
        assert late.update_many(["a"], [again]) == ["replayed"]
    assert kept(late) == before
    with pytest.raises(IdError, match="another outcome"):
        late.update("a", 0)


def test_ids_are_text_integers_and_tuples() -> None:
    late = tc.Late(tc.PlattScaling(tc.Simplex(classes=["no", "yes"])))
    ids: list[Any] = [7, "7", ("7",), ("JFK", 7), ("JFK", "7")]
    means = late.predict_many([[0.25, 0.75]] * 5, ids=ids)
    assert np.array_equal(late.predict_many([[0.25, 0.75]] * 5, ids=(each for each in ids)), means)
    late = loads(dumps(late))
    assert late.pending == ids
    late.update(("JFK", np.int64(7)), "yes")
    late.update_many(np.array(["7"]), np.array(["no"]))
    late.update_many(np.array([7]), np.array(["yes"], object))
    assert loads(dumps(late)).pending == [("7",), ("JFK", "7")]
    assert loads(dumps(late)).history(("JFK", 7)).tolist() == [[0.0, 1.0]]
    for call, match in (
        (lambda: late.predict_many([[0.5, 0.5]], ids="a"), "ids is 'a', expected a sequence"),
        (lambda: late.predict_many([[0.5, 0.5]], ids=5), "ids is 5, expected a sequence"),
        (lambda: late.predict_many([[0.5, 0.5]] * 2, ids=["a"]), "there are 1 ids and 2 forecasts"),
        (lambda: late.update_many(["a"], "yes"), "outcomes is 'yes', expected a sequence"),
        (lambda: late.update_many(["a", "b"], ["yes"]), "there are 2 ids and 1 outcomes"),
        (lambda: late.update_many(pd.DataFrame({"id": ["a"]}), ["yes"]), "ids is a DataFrame, expected a sequence"),
    ):
        with pytest.raises(ParameterError, match=match):
            call()  # type: ignore[no-untyped-call]


def test_errors_name_the_id() -> None:
    class Fussy(tc.Corrector):
        """Announces what it is given, and does not like every outcome."""

        def _announce(self, forecast: Any) -> tc.Forecast:
            return self._point(forecast)

        def _after(self, forecast: Any, outcome: Any) -> dict[str, Any]:
            if outcome[0] == 0.5:
                raise OutcomeError.at(self.rounds + 1, "is a half.")
            if outcome[0] == 0.25:
                raise ZeroDivisionError
            return {}

        def _own_state(self) -> dict[str, Any]:
            return {}

    late = tc.Late(Fussy(tc.Simplex(2)))
    late.predict_many([[0.5, 0.5]] * 4, ids=["a", "b", "c", "d"])
    cases: list[tuple[Any, str]] = [
        (lambda: late.predict([0.5, 0.6], id=("x", 1)), r"forecast of id \('x', 1\) lies outside"),
        (lambda: late.predict_many([[0.5, 0.5], [0.5, 0.6]], ids=["x", "y"]), "forecast of id 'y' lies outside"),
        (lambda: late.update("b", [0.5, 0.6]), "outcome of id 'b' lies outside"),
        (lambda: late.update("b", 0.5), "outcome of id 'b' is the scalar"),
        (lambda: late.update("b", 2), "outcome of id 'b' is the class 2"),
        (lambda: late.amend("b", 2), "outcome of id 'b' is the class 2"),
        (lambda: late.update_many(["a", "b"], [[1, 0], [1, 0, 0]]), "outcome of id 'b' has shape"),
        (lambda: late.update_many(["a", "b"], [0, "sun"]), "outcome of id 'b' is 'sun'"),
        (lambda: late.update_many(["a", "b"], [0.0, 1.0]), "outcome of id 'a' is the scalar"),
        (lambda: late.update("b", [0.5, 0.5]), "outcome of id 'b' is a half"),
    ]
    before = kept(late)
    for call, match in cases:
        with pytest.raises(tc.TreeCalError, match=match):
            call()
        assert kept(late) == before
    with pytest.raises(ZeroDivisionError) as caught:
        late.update_many(["d", "c", "a"], [1, [0.25, 0.75], 1])
    assert caught.value.__notes__ == ["That was in the round of id 'c'."]
    assert late.pending == ["a", "b", "c"]
    horizon = tc.Late(tc.TreeCal(tc.Simplex(2), arity=2, depth=1), limit=1)
    for each in range(2):
        horizon.predict(id=each)
        horizon.update(each, 0)
    with pytest.raises(HorizonError) as full:
        horizon.predict(id="full")
    assert full.value.__notes__ == ["That was in the round of id 'full'."]


def test_the_thing_is_itself_or_a_new_one() -> None:
    late = tc.Late(tc.PlattScaling(tc.Simplex(2)))
    late.predict([0.25, 0.75], id="a")
    late.thing.fit([[0.25, 0.75]] * 30, [0] * 30)  # type: ignore[union-attr]
    late.update("a", 1)
    again = loads(dumps(late))
    assert (late.rounds, late.thing.rounds, again.rounds, again.thing.rounds) == (1, 31, 1, 31)
    pool = tc.Late(tc.TreeCal(tc.Simplex(2)))
    pool.thing.update(1)
    pool.predict(id="a")
    assert (pool.copies, pool.rounds, kept(loads(dumps(pool)))) == (1, 0, kept(pool))
    assert loads(dumps(pool)).thing.rounds == 0


def test_groups_and_weights_reach_the_corrector() -> None:
    class Grouped(tc.Corrector):
        """Announces the mean outcome of the group, by weight."""

        def __init__(self, space: tc.ConvexSet) -> None:
            super().__init__(space)
            self.sums: dict[Any, Any] = {}

        def _announce(self, forecast: Any, *, group: Any = None) -> tc.Forecast:
            weight, total = self.sums.get(group, (0.0, 0.0))
            return self._point(total / weight if weight else forecast)

        def _after(self, forecast: Any, outcome: Any, *, group: Any = None, weight: float = 1.0) -> dict[str, Any]:
            old, total = self.sums.get(group, (0.0, 0.0))
            return {"sums": self.sums | {group: (old + weight, total + weight * outcome)}}

        def _own_state(self) -> dict[str, Any]:
            return {}

        def _own_resumed(self, state: Any, rounds: int) -> Any:
            return {}

        def arguments(self) -> dict[str, Any]:
            return {"space": self.space}

    late = tc.Late(Grouped(tc.Simplex(2)))
    for i, group in enumerate([("JFK", 1), ("LGA", 2)] * 2):
        late.predict([0.5, 0.5], id=i, group=group)
    with pytest.raises(IdError, match="another forecast"):
        late.predict([0.5, 0.5], id=0, group=("LGA", 2))
    late.update(2, 1, weight=3.0)
    late.update_many([0, 1], [0, 1], weights=[1.0, 5.0])
    assert late.predict([0.5, 0.5], id="a", group=("JFK", 1)).mean.tolist() == [0.25, 0.75]
    assert late.report().rounds == 3
    state = late.get_state()
    late.set_state(state)
    assert late.predict([0.5, 0.5], id=3, group=("LGA", 2)).mean.tolist() == [0.5, 0.5]


def test_copies_that_draw_do_not_draw_alike() -> None:
    late = tc.Late(tc.Sampled(tc.TreeCal(tc.Simplex(2), arity=2), block=1))
    for t in range(60):
        late.predict_many(ids=[f"{t} {i}" for i in range(20)])
        late.update_many([f"{t} {i}" for i in range(20)], [int(t % 3 == 0)] * 20)
    drawn = late.predict_many(ids=range(20))  # of twenty copies with the same past
    assert len(np.unique(drawn, axis=0)) > 1
    assert np.array_equal(loads(dumps(late)).predict_many(ids=range(30)), late.predict_many(ids=range(30)))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rounds, "REMEMBERED", 100)
    late, sizes = tc.Late(tc.PlattScaling(tc.Simplex(2), forget=False), limit=20), []
    for t in range(3000):
        late.predict([0.25, 0.75], id=t, due=t + 1e6, now=t)
        if t % 2:
            late.update(t, t % 3 % 2)
        if t % 500 == 499:
            sizes.append(len(dumps(late)))
        assert len(late._rounds.dues) <= 1050
    assert max(sizes[1:]) < 1.02 * sizes[1]
    assert (len(late._rounds.closed), len(late.pending), late.void) == (100, 19, 1481)
    with pytest.raises(IdError, match="is not known"):
        late.update(1, 0)
    late.update(2999, 0)  # the same again
    with pytest.raises(IdError, match="another outcome"):
        late.update(2999, 1)


@pytest.mark.parametrize("name", ["platt", "guarded", "guarded scaling"])
def test_threads_lose_nothing(name: str) -> None:
    late, failures = tc.Late(THINGS[name]()), list[BaseException]()
    P, Y = points(late.space, 40, 0), outcomes(late.space, 40, 1)

    def play(me: int) -> None:
        try:
            for t in range(40):
                late.predict(*asked(late.thing, P[t]), id=f"{me} {t}")
                if t >= 2:
                    late.update(f"{me} {t - 2}", Y[t - 2])
                late.get_state()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=play, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert late.counts[:3] == (160, 152, 0)
    assert kept(loads(dumps(late))) == kept(late)


@pytest.mark.parametrize(("lag", "most"), [(20, 0.1), (50, 0.12)])
def test_late_outcomes_cost_a_guard_little(lag: int, most: float) -> None:
    """On a drift, where a pool of guards had 0.14 and 0.29; no copy of the safe part needs to forecast."""
    space, rng = tc.Simplex(2), np.random.default_rng(0)
    Y = (rng.random(2000) < np.linspace(0.1, 0.9, 2000)).astype(int)
    late = tc.Late(tc.Guarded(space))
    for t in range(len(Y)):
        late.predict(id=t)
        if t >= lag:
            late.update(t - lag, int(Y[t - lag]))
    assert late.ledger.error("l1") < most
    assert len(late.ledger.exact()) < 30
    assert late.copies == lag + 1
    ahead = late.certificate("l1", rounds=50, after=late.ledger)
    assert ahead is not None
    assert late.ledger.error("l1") < ahead.bound < 0.16  # the bound of a new one is 0.7 with 51 copies


def test_what_has_no_scores_says_so() -> None:
    forecaster, corrector = tc.Late(tc.TreeCal(tc.Simplex(2)), ledger=False), tc.Late(tc.PlattScaling(tc.Simplex(2)))
    for ask in (forecaster.report, lambda: forecaster.ledger, lambda: forecaster.ledgers, lambda: corrector.ledger):
        with pytest.raises(UnsupportedError):
            ask()
    calls: list[Any] = [corrector.report, lambda: corrector.ledgers, lambda: forecaster.certificate("l1")]
    for call in calls:
        with pytest.raises(ParameterError):
            call()
    assert corrector.certificate("l1") is None
    with pytest.raises(ParameterError):
        tc.Late(tc.GuardedCorrector(tc.Simplex(2))).report()
    assert repr(forecaster) == "Late(TreeCal(Simplex(2)), ledger=False)"
    assert set(SHARED) < set(POOLS)
