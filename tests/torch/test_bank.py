"""The bank of tensors: that of the CPU, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

import treecal as tc  # noqa: E402
from treecal.exceptions import HorizonError, OutcomeError, ParameterError  # noqa: E402
from treecal.torch import Bank  # noqa: E402

FORECASTERS = [
    tc.TreeCal(tc.Simplex(3), arity=2),
    tc.TreeCal(tc.Simplex(3), arity=3, mix=0.1),
    tc.TreeCal(tc.Box([0, -1, 0], [1, 2, 3]), arity=4),
    tc.TreeCal(tc.Simplex(3), arity=2, depth=6),
]


def same(bank: Bank, mirror: tc.Bank) -> bool:
    own, theirs = bank.bank().get_state(), mirror.get_state()
    said, expected = bank.predict(), mirror.predict()
    return (
        all(own[name].tobytes() == theirs[name].tobytes() for name in theirs)
        and said.points.numpy().tobytes() == expected.points.tobytes()
        and said.weights.numpy().tobytes() == expected.weights.tobytes()
        and said.sizes.tolist() == expected.sizes.tolist()
        and bool(np.abs(said.mean.numpy() - expected.mean).max(initial=0.0) < 1e-15)
    )


@pytest.mark.parametrize("forecaster", FORECASTERS, ids=str)
@pytest.mark.parametrize("points", [True, False])
def test_bit_for_bit(forecaster: tc.TreeCal, points: bool) -> None:
    box = isinstance(forecaster.space, tc.Box)
    classes = not points and not box
    drawn = np.random.default_rng(0)
    bank, mirror = Bank(forecaster, streams=7), tc.Bank(forecaster, streams=7)
    for count in (5, 30, 1, 0, 40):
        keys = drawn.integers(7, size=count)
        rows: Any = drawn.integers(3, size=count) if classes else drawn.dirichlet(np.ones(3), size=count)
        rows = rows.astype(np.float32).astype(np.float64) if box else rows
        bank.update(torch.from_numpy(keys), torch.from_numpy(rows))
        mirror.update(keys, rows)
    bank.add(2)
    mirror.add(2)
    assert same(bank, mirror)
    bank.update(
        np.array([8, 8, 1]), torch.from_numpy(mirror.predict([0, 1, 2]).points[:, 0].copy())
    )  # NumPy has DLPack
    mirror.update([8, 8, 1], mirror.predict([0, 1, 2]).points[:, 0])
    assert same(bank, mirror)


def test_what_only_the_cpu_reads() -> None:
    ball = tc.Ball(2)
    for space, rows in (
        (tc.Simplex(2), torch.tensor([[1, 0], [0, 1]])),
        (ball, torch.tensor([[0.6, 0.8], [0.0, -1.0]], dtype=torch.float64)),
    ):
        bank, mirror = Bank(space, streams=2), tc.Bank(space, streams=2)
        bank.update(torch.tensor([0, 1]), rows)
        mirror.update([0, 1], rows.numpy())
        assert same(bank, mirror)
    with pytest.raises(OutcomeError, match="in row 1"):
        Bank(ball, streams=2).update(torch.tensor([0, 1]), torch.tensor([[0.0, 0.0], [2.0, 0.0]]))


def test_snapshots_are_those_of_the_cpu(tmp_path: Path) -> None:
    bank = Bank(tc.Simplex(2), streams=4)
    bank.update(torch.tensor([0, 3, 3]), torch.tensor([0, 1, 1]))
    tc.save(bank.bank(), tmp_path / "b.safetensors")
    loaded: Any = tc.load(tmp_path / "b.safetensors")
    again = Bank.from_bank(loaded)
    again.update(torch.tensor([3]), torch.tensor([0]))
    loaded.update([3], [0])
    assert same(again, loaded)
    assert same(Bank.from_bank(tc.Bank(tc.Simplex(2))), tc.Bank(tc.Simplex(2)))


def test_what_is_refused_changes_nothing() -> None:
    bank = Bank(tc.TreeCal(tc.Simplex(2), arity=2, depth=2), streams=2)
    one, two = torch.tensor([0]), torch.tensor([0, 1])
    for keys, outcomes, message in (
        (torch.tensor([2]), torch.tensor([0]), "key 0 is 2"),
        (one.double(), one, "expected integers"),
        ([0], one, "DLPack"),
        (two, one, "2 keys and 1 outcomes"),
    ):
        with pytest.raises(ParameterError, match=message):
            bank.update(keys, outcomes)
    for outcomes in (torch.tensor([0, 2]), torch.tensor([[1.0, 0.0], [0.5, 0.6]]), torch.tensor([[0.0, np.nan]] * 2)):
        with pytest.raises(OutcomeError, match="in row"):
            bank.update(two, outcomes)
    with pytest.raises(HorizonError, match="stream 1"):
        bank.update(torch.tensor([1] * 5), torch.zeros(5, dtype=torch.int64))
    assert bank.rounds.tolist() == [0, 0]
    bank.update(torch.tensor([1] * 4), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(HorizonError):
        bank.predict()
    with pytest.raises(ParameterError, match="the bank also has keys"):
        Bank.from_bank(tc.Bank(tc.Simplex(2), names=["a"]))
    with pytest.raises(ParameterError, match="TreeCal"):
        Bank(tc.AdaptiveTreeCal(tc.Simplex(2)))  # type: ignore[arg-type]
