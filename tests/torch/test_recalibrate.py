"""Recalibrate against the corrector that it mirrors, and snapshots between them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install torch")

import treecal as tc  # noqa: E402
from treecal.exceptions import ParameterError  # noqa: E402
from treecal.state import dumps  # noqa: E402
from treecal.torch import Recalibrate  # noqa: E402


def batch(rows: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    drawn = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=drawn)
    return 2 * logits, torch.distributions.Categorical(logits=logits).sample()


def numpy_corrector(classes: int, method: str, **given: Any) -> Any:
    if method == "temperature":
        return tc.TemperatureScaling(tc.Simplex(classes), scores=None, **given)
    return tc.VectorScaling(tc.Simplex(classes), curvature="by class", scores=None, **given)


def same(one: Recalibrate, other: Recalibrate) -> bool:
    return dumps(one.corrector()) == dumps(other.corrector())


@pytest.mark.parametrize("method", ["vector", "temperature"])
@pytest.mark.parametrize("forget", [True, False])
def test_learns_what_the_corrector_learns_bit_for_bit(method: Any, forget: bool) -> None:
    x, y = batch(150, 4)
    module, mirror = Recalibrate(4, method=method, forget=forget), numpy_corrector(4, method, forget=forget)
    for part in (slice(0, 100), slice(100, 150)):
        module.observe(x[part], y[part])
    p = torch.softmax(x.double(), 1).numpy()
    mirror.update_many(p, y.numpy())
    own, theirs = module.corrector().get_state()["own"], mirror.get_state()["own"]
    assert all(np.array_equal(own[name], theirs[name]) for name in theirs)
    said = mirror.predict_many(p)
    assert np.abs(module.mixture(x).numpy() - said).max() < 1e-12
    near = 1e-6 if not forget else 0.02
    assert np.abs(module(x).numpy() - said).max() < near


def test_snapshots_are_the_correctors(tmp_path: Path) -> None:
    x, y = batch(80, 3)
    module = Recalibrate(["a", "b", "c"])
    module.observe(x, y)
    tc.save(module.corrector(), tmp_path / "f.safetensors")
    loaded: Any = tc.load(tmp_path / "f.safetensors")
    again = Recalibrate.from_corrector(loaded)
    assert all(torch.equal(a, b) for a, b in zip(again.buffers(), module.buffers(), strict=True))
    assert same(again, module)
    other = Recalibrate(["a", "b", "c"])
    other.load_state_dict(module.state_dict())
    other.observe(x, y)
    again.observe(x, y)
    assert torch.equal(again(x), other(x))
    with pytest.raises(ParameterError, match="by class"):
        Recalibrate.from_corrector(tc.VectorScaling(tc.Simplex(3), curvature="full"))


def test_it_helps() -> None:
    x, y = batch(2000, 5)
    module = Recalibrate(5, method="temperature")
    module.observe(x[:1000], y[:1000])
    before, after = (-(p[1000:].gather(1, y[1000:, None]).log().mean()) for p in (torch.softmax(x, 1), module(x)))
    assert after < before - 0.05


def test_invalid_rows_and_kinds() -> None:
    x, y = batch(30, 3)
    x[2, 0], y[3] = np.nan, 7
    module, other = Recalibrate(3), Recalibrate(3)
    module.observe(x, y)
    kept = [row for row in range(30) if row not in (2, 3)]
    other.observe(x[kept], y[kept])
    assert int(module.invalid) == 2
    assert same(module, other)
    for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert module(x[kept].to(kind)).dtype == kind
    grown = x[kept].clone().requires_grad_()
    module(grown)[0, 0].backward()
    assert torch.isfinite(grown.grad).all()
    with pytest.raises(ParameterError, match="'vector' or 'temperature'"):
        Recalibrate(3, method="full")  # type: ignore[arg-type]


@pytest.mark.heavy  # a compiler of C++ is started
def test_under_compile() -> None:
    x, y = batch(64, 4)
    module, other = Recalibrate(4), Recalibrate(4)
    module.observe(x.bfloat16(), y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(other.observe)(x.bfloat16(), y)
        assert same(other, module)
        assert torch.allclose(torch.compile(module)(x), module(x), atol=1e-6)
