"""State is data: states and copies stand by themselves, and an update that fails leaves everything as it was."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.correctors.models import run, some_rounds
from treecal._typing import Array
from treecal.correctors import Cells, Centroids, _newton_kernels
from treecal.correctors._recalibrator import nodes_of_group
from treecal.exceptions import ForecastError, HorizonError, OutcomeError, ParameterError
from treecal.testing import check_corrector

TWO = tc.Simplex(2)


class Refusing(tc.RunningMean):
    """A forecaster that learns, and then fails, in its third round."""

    def _learn(self, outcome: Array) -> None:
        super()._learn(outcome)
        if self.rounds == 3:
            raise ArithmeticError("no third round")


def fragile(space: tc.ConvexSet) -> tc.Recalibrator:
    return tc.Recalibrator(space, groups=lambda b: "all", make=lambda: Refusing(space))


def frozen(f: tc.Corrector) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value

    return plain(f.get_state())


def everything(f: tc.Corrector) -> list[Any]:
    """The state, and the reports with all that ledgers hold; of the parts of a chain, too."""
    parts = f.parts if isinstance(f, tc.Chain) else ()
    errors = [ledger.error("l1", total=True) for ledger in f.ledgers.values()] if f.scores == "exact" else []
    return [f.rounds, frozen(f), errors, *map(everything, parts)]


# An update that fails


@pytest.mark.parametrize(
    "make",
    [
        lambda: fragile(TWO),
        lambda: tc.Chain([tc.VectorScaling(TWO), tc.Recalibrator(TWO, groups=Centroids(count=2)), fragile(TWO)]),
        lambda: tc.Chain([fragile(TWO), tc.Recalibrator(TWO)]),
        lambda: tc.Chain([tc.PlattScaling(TWO), tc.Chain([tc.Recalibrator(TWO, make="shift"), fragile(TWO)])]),
        lambda: tc.Chain([tc.Recalibrator(TWO, make=lambda: tc.TreeCal(TWO, arity=2)), fragile(TWO)]),
    ],
    ids=["alone", "last", "first", "nested", "after a tree"],
)
def test_an_update_that_fails_changes_nothing(make: Callable[[], tc.Corrector]) -> None:
    f, (forecasts, outcomes) = make(), some_rounds(2, 3, 0)
    run(f, forecasts[:2], outcomes[:2])
    x = f.predict(forecasts[2])
    before = everything(f)
    for _ in range(3):
        with pytest.raises(ArithmeticError, match="no third round"):
            f.update(outcomes[2])
        assert everything(f) == before
        assert f.predict(forecasts[2]) == x


@pytest.mark.parametrize("chained", [False, True])
def test_a_step_that_fails_changes_nothing(chained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = tc.VectorScaling(TWO)
    f: tc.Corrector = tc.Chain([tc.Recalibrator(TWO), scaling]) if chained else scaling
    forecasts, outcomes = some_rounds(2, 8, 1)
    run(f, forecasts[:7], outcomes[:7])
    f.predict(forecasts[7])
    before = everything(f)

    def fails(copies: Any, *_: Any) -> None:
        copies.theta[:] = np.nan
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(_newton_kernels.play, "now", fails)
        with pytest.raises(MemoryError):
            f.update(outcomes[7])
    assert everything(f) == before
    f.update(outcomes[7])
    assert f.rounds == 8


def test_a_forecast_that_is_refused_opens_no_round() -> None:
    """Its group's tree is full; an outcome then has no forecast, and other groups go on."""

    def made() -> tc.Recalibrator:
        return tc.Recalibrator(TWO, groups=lambda b: b[0] > 0.5, make=lambda: tc.TreeCal(TWO, arity=2, depth=1))

    low, high = [0.2, 0.8], [0.7, 0.3]
    for f in (made(), tc.Chain([tc.PlattScaling(TWO), made()])):
        run(f, np.array([high, high]), np.array([[1.0, 0.0]] * 2))
        before = everything(f)
        with pytest.raises(HorizonError):
            f.predict(high)
        with pytest.raises(OutcomeError, match="arrived before its forecast"):
            f.update([0, 1])
        assert everything(f) == before
        f.predict(low)
        f.update([0, 1])
        assert f.rounds == 3


def test_a_part_that_was_asked_something_else_learns_the_chains_round() -> None:
    def made() -> tc.Chain:
        return tc.Chain([tc.PlattScaling(TWO), tc.Recalibrator(TWO)])

    f, plain = made(), made()
    for b, y in zip(*some_rounds(2, 20, 2), strict=True):
        assert f.predict(b) == plain.predict(b)
        for part in f.parts:
            part.predict(b[::-1])
        f.update(y)
        plain.update(y)
    assert everything(f) == everything(plain)


def test_a_part_is_in_a_chain_once() -> None:
    part = tc.PlattScaling(TWO)
    with pytest.raises(ParameterError, match=r"twice among the parts(.|\n)*copy"):
        tc.Chain([part, part])


def test_what_lies_outside_the_set_is_not_announced() -> None:
    class Outside(tc.TemperatureScaling):
        def _announce(self, forecast: Array) -> tc.Forecast:
            return tc.Forecast([2 * forecast])

    f = Outside(TWO)
    before = everything(f)
    with pytest.raises(ForecastError, match=r"outside Simplex\(2\)"):
        f.predict([0.5, 0.5])
    assert everything(f) == before


# Groups


@pytest.mark.parametrize("depth", [None, 70, 200])
def test_nodes_of_groups_never_collide(depth: int | None) -> None:
    """However high the trees are; the per-node error is then the sum of the groups' own."""
    names = [nodes_of_group(group, np.stack([np.arange(300), np.zeros(300, int)], axis=1))[:, 0] for group in range(50)]
    assert len(np.unique(names)) == 50 * 300

    def tree() -> tc.TreeCal:
        return tc.TreeCal(TWO, arity=2, depth=depth)

    try:
        tree()
    except ParameterError:  # a tree of more rounds than an integer counts
        return
    f = tc.Recalibrator(TWO, groups=lambda b: b[0] > 0.5, make=tree, scores="exact")
    owner: dict[tuple[int, ...], bool] = {}
    apart = {True: tc.Ledger(TWO), False: tc.Ledger(TWO)}
    for b, y in zip(*some_rounds(2, 60, 3), strict=True):
        x, group = f.predict(b), bool(b[0] > 0.5)
        apart[group].record(x, y)
        for node in () if x.nodes is None else x.nodes.tolist():
            assert owner.setdefault(tuple(node), group) == group
        f.update(y)
    total = sum(ledger.error("l1", per_node=True, total=True) for ledger in apart.values())
    assert f.ledgers["after"].error("l1", per_node=True, total=True) == pytest.approx(total)


def test_a_new_group_costs_the_same_however_many_there_are() -> None:
    """Memory touched by a round, not time, which a busy machine distorts."""
    f = tc.Recalibrator(TWO, groups=Cells(width=1e-7), scores=None)
    forecasts, outcomes = some_rounds(2, 5000, 4)
    run(f, forecasts[:-1], outcomes[:-1])
    f.predict(forecasts[-1])
    tracemalloc.start()
    f.update(outcomes[-1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000  # one row for each group would be 200,000 bytes
    assert len(f.get_state()["own"]["names"]) == 5000


# Snapshots


def test_groups_that_draw_play_in_a_chain() -> None:
    """Their state cannot be written, but a chain can take back what they learned."""
    rng = np.random.default_rng(0)
    f = tc.Chain([tc.Recalibrator(TWO, make=lambda: tc.SampleTreeCal(TWO, block=2, rng=rng)), tc.PlattScaling(TWO)])
    run(f, *some_rounds(2, 30, 5))
    assert f.rounds == 30


def test_the_example_of_the_base_class_passes_the_checks() -> None:
    import doctest

    found = doctest.DocTestFinder().find(tc.Corrector, "Corrector", globs={"np": np, **vars(tc)})
    examples = next(each for each in found if each.name == "Corrector")
    doctest.DocTestRunner().run(examples, clear_globs=False)
    check_corrector(lambda: examples.globs["Shift"](tc.Simplex(3)))
