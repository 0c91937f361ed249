"""Recalibrate: temperature and bias that are learned online, as a module behind a model's logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from treecal.correctors import Newton, TemperatureScaling, VectorScaling
from treecal.exceptions import ParameterError
from treecal.geometry import Simplex
from treecal.torch._read import read_logits, read_outcomes, space_of, uncompiled, valid_rows

Method = Literal["vector", "temperature"]
_COPIES = 40  # that there is room for: a new one joins when the rounds have doubled


class Recalibrate(nn.Module):
    """Recalibrates logits online: a slope and a bias for each class, or one temperature, with forgetting.

    Behind a model, `forward(logits)` returns probabilities, `softmax(slope·ln b + bias)` for `b = softmax(logits)`, and
    `observe(logits, outcomes)` learns from outcomes once they are known. It is `tc.VectorScaling` (with curvature
    "by class") or `tc.TemperatureScaling` on the device: its parameters are buffers, so they are in `state_dict`, move
    with `to`, and are saved with the model.

    *What agrees.* `observe` takes the online Newton steps of the corrector, row by row in order, in float64, from the
    softmax in float64 of the logits, on the CPU: the state is the corrector's bit for bit. `mixture` is what
    the corrector announces, to 1e-12 in float64: the mean over its copies, which forget at different speeds, by trust;
    the corrector's bounds are for it. `forward` uses the mean of their parameters instead, at the cost of one softmax,
    in float32; with `forget=False`, or before 64 rounds, there is one copy and both are the same.

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

    theta: Tensor
    curvature: Tensor
    trust: Tensor
    seen: Tensor
    rounds: Tensor
    invalid: Tensor
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
        self._space = space_of(classes)
        self.classes = self._space.dim
        self.method = method
        self.rate = rate
        self.ridge = ridge
        self.radius = radius
        self.forget = forget
        now = self._new()._state
        for name, value in (
            ("theta", np.zeros((_COPIES, *now.theta.shape[1:]))),
            ("curvature", np.zeros((_COPIES, *now.curvature.shape[1:]))),
            ("trust", np.zeros(_COPIES)),
            ("seen", np.zeros(())),
        ):
            self.register_buffer(name, torch.from_numpy(value))
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64))
        self.register_buffer("invalid", torch.zeros((), dtype=torch.int64))
        self.register_buffer("slope", torch.ones(self.classes))
        self.register_buffer("bias", torch.zeros(self.classes))
        self._take(now, 0)

    def _new(self) -> TemperatureScaling | VectorScaling:
        given: dict[str, Any] = {"rate": self.rate, "ridge": self.ridge, "radius": self.radius, "forget": self.forget}
        if self.method == "temperature":
            return TemperatureScaling(self._space, scores=None, **given)
        return VectorScaling(self._space, curvature="by class", scores=None, **given)

    @property
    def _least(self) -> float:
        """The logarithm of the least probability that is distinguished from 0."""
        return math.log((TemperatureScaling if self.method == "temperature" else VectorScaling)._least)

    def forward(self, logits: Tensor) -> Tensor:
        """Return recalibrated probabilities, in the shape and the type of the logits."""
        read_logits(logits, self.classes)
        shape = (-1, *(1,) * (logits.ndim - 2))
        kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
        logs = torch.log_softmax(logits, 1, dtype=kind).clamp_min(self._least)
        z = self.slope.to(kind).view(shape) * logs + self.bias.to(kind).view(shape)
        return torch.softmax(z, 1).to(logits.dtype)

    def mixture(self, logits: Tensor) -> Tensor:
        """Return what the corrector announces, in float64: the mean over its copies by trust."""
        x = read_logits(logits, self.classes)
        with torch.no_grad():
            logs = torch.softmax(x, 1, dtype=torch.float64).clamp(math.exp(self._least), 1.0).log()
            found = torch.zeros_like(logs)
            for theta, trust in zip(self.theta, self.trust.tolist(), strict=True):
                if trust:
                    slope, bias = (theta, 0.0) if self.method == "temperature" else theta.view(2, -1)
                    found += trust * torch.softmax(slope * logs + bias, 1)
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
            corrector = self.corrector()
            if len(y):
                corrector.update_many(p.numpy(), y.numpy())
            self._take(corrector._state, corrector.rounds)
            self.invalid += len(valid) - len(y)

    def _use(self, mean: Tensor) -> None:
        """Put the mean of the copies' parameters, by trust, where `forward` reads it."""
        self.slope.copy_(mean.expand(self.classes) if self.method == "temperature" else mean[: self.classes])
        if self.method == "vector":
            self.bias.copy_(mean[self.classes :])

    def corrector(self) -> TemperatureScaling | VectorScaling:
        """Return the corrector with the same state: what `tc.save` takes, and what predicts without torch."""
        found = self._new()
        trust = self.trust.cpu().numpy()
        count = int((trust > 0).sum())
        theta, curvature = (part[:count].cpu().numpy().copy() for part in (self.theta, self.curvature))
        rounds = int(self.rounds)
        state = Newton(theta, curvature, trust[:count].copy(), float(self.seen))
        found.set_state({"rounds": rounds, "fitted": 0, "own": dict(vars(state)), "scores": {}, "ledgers": {}})
        return found

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
        found._take(corrector._state, corrector.rounds)
        return found

    def _take(self, now: Newton, rounds: int) -> None:
        """Put a state into the buffers."""
        count = len(now.trust)
        for buffer, part in ((self.theta, now.theta), (self.curvature, now.curvature), (self.trust, now.trust)):
            buffer.zero_()
            buffer[:count] = torch.from_numpy(np.array(part))
        self.seen.fill_(now.seen)
        self.rounds.fill_(rounds)
        self._use(torch.from_numpy(np.asarray(now.trust @ now.theta)))

    def extra_repr(self) -> str:
        """Return the arguments, for `repr`."""
        return f"classes={self.classes}, method={self.method!r}, forget={self.forget}"
