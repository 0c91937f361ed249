"""Replay of tensors; and the kernels' own arithmetic, at the edges, which the CPU does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

import treecal as tc  # noqa: E402
from treecal.engine import KERNEL_DISTANCES  # noqa: E402
from treecal.exceptions import OutcomeError, ParameterError, UnsupportedError  # noqa: E402
from treecal.torch import replay  # noqa: E402
from treecal.torch._replay import _result  # noqa: E402


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_points_as_on_the_cpu(kind: Any) -> None:
    rows = torch.rand(300, 4, generator=torch.Generator().manual_seed(0)).to(kind)
    run, other = replay(rows, tc.Box(0, 1, dim=4)), tc.replay(rows.double().numpy(), tc.Box(0, 1, dim=4))
    assert run.rounds == 300
    assert [run.error(d) for d in KERNEL_DISTANCES] == [other.error(d, per_node=True) for d in KERNEL_DISTANCES]
    assert run.next is not None
    assert np.array_equal(run.next.points, other.forecast(300).points)


def test_dlpack_classes_and_refusals() -> None:
    classes = np.random.default_rng(0).integers(3, size=200)
    run = replay(classes, tc.Simplex(3), arity=4)  # NumPy has DLPack
    assert run.error("l1") == tc.replay(classes, tc.Simplex(3), arity=4).error("l1", per_node=True)
    with pytest.raises(OutcomeError, match="round 201"):
        replay(np.append(classes, 3), tc.Simplex(3))
    with pytest.raises(ParameterError, match="DLPack"):
        replay([0, 1], tc.Simplex(3))
    with pytest.raises(UnsupportedError, match="only ℓ1, ℓ2 and ℓ2²"):
        run.error("linf")
    with pytest.raises(ParameterError, match="TreeCal"):
        replay(classes, tc.AdaptiveTreeCal(tc.Simplex(3)))  # type: ignore[arg-type]
    full = replay(torch.zeros(8, dtype=torch.int64), tc.TreeCal(tc.Simplex(2), arity=2, depth=3))
    assert full.next is None


@pytest.mark.parametrize(
    ("rounds", "arity", "depth"), [(1, 8, None), (64, 8, None), (700, 8, None), (500, 3, 7), (81, 3, 4)]
)
def test_what_is_left_to_the_cpu(rounds: int, arity: int, depth: int | None) -> None:
    """The slices that kernels leave, here all of the stream, make the errors and the forecast of the CPU."""
    forecaster = tc.TreeCal(tc.Simplex(3), arity=arity, depth=depth)
    classes = torch.randint(3, (rounds,), generator=torch.Generator().manual_seed(2))
    table = np.array([[0, 0, forecaster.tree.heights(rounds), rounds, 0]])
    run = _result(forecaster, np.full(3, 1 / 3), rounds, np.zeros(3), table, np.eye(3)[classes.numpy()])
    other = replay(classes, forecaster)
    assert [run.error(d) for d in KERNEL_DISTANCES] == pytest.approx(
        [other.error(d) for d in KERNEL_DISTANCES], rel=1e-13
    )
    if other.next is None:
        assert run.next is None
    else:
        assert run.next is not None
        assert np.array_equal(run.next.points, other.next.points)
