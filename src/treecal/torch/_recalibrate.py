"""Recalibrate: temperature and bias that are learned online, as a module behind a model's logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from treecal._typing import Saved
from treecal.correctors import TemperatureScaling, VectorScaling
from treecal.exceptions import ParameterError
from treecal.geometry import Simplex
from treecal.torch._read import as_arrays, as_tensors, read_logits, read_outcomes, space_of, uncompiled, valid_rows

Method = Literal["vector", "temperature"]


class Recalibrate(nn.Module):
    """Recalibrates logits online: a slope and a bias for each class, or one temperature, with forgetting.

    Behind a model, `forward(logits)` returns probabilities, `softmax(slope·ln b + bias)` for `b = softmax(logits)`, and
    `observe(logits, outcomes)` learns from outcomes once they are known. It is `tc.VectorScaling` (with curvature
    "by class") or `tc.TemperatureScaling`, which learns on the CPU; what `forward` needs of it is in buffers, which
    move with `to`. Its whole state is in `state_dict`.

    *What agrees.* `observe` takes the online Newton steps of the corrector, row by row in order, in float64, from the
    softmax in float64 of the logits: the state is the corrector's bit for bit. `mixture` is what it announces, computed
    on the CPU: the mean over its copies, which forget at different speeds, by trust; the corrector's bounds are for it.
    `forward` uses the mean of their parameters instead, at the cost of one softmax, in float32; with `forget=False`, or
    before 64 rounds, there is one copy and both are the same.

    Snapshots are those of the corrector: `tc.save(module.corrector(), path)`, and
    `Recalibrate.from_corrector(tc.load(path))`.

    Parameters
    ----------
    classes
        Number of classes, or their names.
    method
        "vector", a slope and a bias for each class; or "temperature".
    rate, ridge, radius, forget
        As for every `treecal.correctors.Scaling`.

    Examples
    --------
    A model that is twice as sure as it should be:

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> module = Recalibrate(3, method="temperature")
    >>> for _ in range(20):
    ...     logits = torch.randn(100, 3)
    ...     outcomes = torch.distributions.Categorical(logits=logits).sample()
    ...     module.observe(2 * logits, outcomes)
    >>> round(1 / module.slope[0].item(), 1)
    2.1
    >>> bool((module(2 * logits) - torch.softmax(logits, 1)).abs().max() < 0.05)
    True
    """

    slope: Tensor
    bias: Tensor

    def __init__(
        self,
        classes: int | Sequence[str],
        *,
        method: Method = "vector",
        rate: float = 0.1,
        ridge: float = 100.0,
        radius: float = 100.0,
        forget: bool = True,
    ) -> None:
        super().__init__()
        if method not in get_args(Method):
            raise ParameterError.expected("method", method, "'vector' or 'temperature'")
        space = space_of(classes)
        self.classes = space.dim
        self.method = method
        self.invalid = 0
        given: dict[str, Any] = {"rate": rate, "ridge": ridge, "radius": radius, "forget": forget, "scores": None}
        self._corrector: TemperatureScaling | VectorScaling
        if method == "temperature":
            self._corrector = TemperatureScaling(space, **given)
        else:
            self._corrector = VectorScaling(space, curvature="by class", **given)
        self.register_buffer("slope", torch.ones(self.classes))
        self.register_buffer("bias", torch.zeros(self.classes))

    @property
    def rounds(self) -> int:
        """Number of rows that were learned."""
        return self._corrector.rounds

    @property
    def _least(self) -> float:
        """The logarithm of the least probability that is distinguished from 0."""
        return math.log(self._corrector._least)

    def forward(self, logits: Tensor) -> Tensor:
        """Return recalibrated probabilities, in the shape and the type of the logits."""
        read_logits(logits, self.classes)
        shape = (-1, *(1,) * (logits.ndim - 2))
        kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
        logs = torch.log_softmax(logits, 1, dtype=kind).clamp_min(self._least)
        z = self.slope.to(kind).view(shape) * logs + self.bias.to(kind).view(shape)
        return torch.softmax(z, 1).to(logits.dtype)

    def mixture(self, logits: Tensor) -> Tensor:
        """Return what the corrector announces, in float64; NaN for invalid rows."""
        with torch.no_grad():
            p = torch.softmax(read_logits(logits, self.classes), 1, dtype=torch.float64)
            found = torch.full_like(p, math.nan)
            valid = ~torch.isnan(p[:, 0])
            found[valid] = torch.from_numpy(self._corrector.predict_many(p[valid].cpu().numpy())).to(p.device)
            return found

    @uncompiled
    def observe(self, logits: Tensor, outcomes: Tensor) -> None:
        """Learn the outcomes of a batch, row by row in order. Invalid rows are left out and counted in `invalid`.

        Parameters
        ----------
        logits
            As the model gave them, `(n, classes)`.
        outcomes
            The class of each row, `(n,)`.
        """
        x = read_logits(logits, self.classes)
        y = read_outcomes(outcomes, logits)
        with torch.no_grad():
            p = torch.softmax(x, 1, dtype=torch.float64)
            valid = valid_rows(p, y)
            p = p[valid].cpu()
            y = y[valid].cpu()
            if len(y):
                self._corrector.update_many(p.numpy(), y.numpy())
            self.invalid += len(valid) - len(y)
            self._use()

    def _use(self) -> None:
        """Put the mean of the copies' parameters, by trust, where `forward` reads it."""
        now = self._corrector._state
        mean = torch.from_numpy(np.asarray(now.trust @ now.theta))
        self.slope.copy_(mean.expand(self.classes) if self.method == "temperature" else mean[: self.classes])
        if self.method == "vector":
            self.bias.copy_(mean[self.classes :])

    def corrector(self) -> TemperatureScaling | VectorScaling:
        """Return the corrector with the same state: what `tc.save` takes, and what predicts without torch."""
        return deepcopy(self._corrector)

    @classmethod
    def from_corrector(cls, corrector: TemperatureScaling | VectorScaling) -> Self:
        """Return a module with the state of a corrector, on the CPU.

        Parameters
        ----------
        corrector
            A `tc.TemperatureScaling`, or a `tc.VectorScaling` with curvature "by class".
        """
        by_class = isinstance(corrector, VectorScaling) and corrector.curvature == "by class"
        if type(corrector) is not TemperatureScaling and not by_class:
            hint = "tc.VectorScaling(space, curvature='by class')."
            raise ParameterError.expected(
                "corrector", corrector, "a TemperatureScaling, or a VectorScaling by class", hint=hint
            )
        space = corrector.space
        assert isinstance(space, Simplex)
        found = cls(
            space.classes or space.dim,
            method="vector" if by_class else "temperature",
            rate=corrector.rate,
            ridge=corrector.ridge,
            radius=corrector.radius,
            forget=corrector.forget,
        )
        found._resume(corrector.get_state())
        return found

    def _resume(self, state: Saved) -> None:
        known = {name: state[name] for name in ("rounds", "fitted", "own")}
        self._corrector.set_state(known | {"scores": {}, "ledgers": {}})
        self._use()

    def get_extra_state(self) -> Saved:
        """Return the corrector's state, for `state_dict`: arrays as tensors, so that it loads with `weights_only`."""
        return {"corrector": as_tensors(self._corrector.get_state()), "invalid": self.invalid}

    def set_extra_state(self, state: Saved) -> None:
        """Resume from a state that `get_extra_state` returned."""
        self._resume(as_arrays(state["corrector"]))
        self.invalid = int(state["invalid"])

    def extra_repr(self) -> str:
        """Return the arguments, for `repr`."""
        return f"classes={self.classes}, method={self.method!r}, forget={self._corrector.forget}"
