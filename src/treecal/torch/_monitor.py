"""Monitor: an alarm when a model's logits are provably off, without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from treecal._typing import Saved
from treecal.monitor import Alarm, Monitor as HostMonitor
from treecal.torch._read import as_arrays, as_tensors, read_logits, read_outcomes, space_of, uncompiled, valid_rows

_MOST = 2**24  # probabilities that wait, at most


class Monitor(nn.Module):
    """Watches a model's logits, and raises an alarm when they are provably off: `tc.Monitor`, fed from the device.

    `update` starts the copies to the CPU and returns; rows are learned when `alarm` or `e_value` is asked for, or when
    too many wait. Evidence is a product in the order of rows, so it is the CPU that multiplies: the result is that of
    `tc.Monitor` on the softmax in float64 of the same logits, bit for bit, and the same alarm. It is in `state_dict`.

    Rows that are invalid (a logit that is NaN or ∞, an outcome that is no class) are left out and counted in `invalid`.

    Parameters
    ----------
    classes
        Number of classes, or their names.
    alpha
        The probability of a false alarm, over the whole stream.
    arl
        Another kind of alarm: see `tc.Monitor`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> monitor = Monitor(3, alpha=0.01)
    >>> for _ in range(10):
    ...     logits = torch.randn(100, 3)
    ...     outcomes = torch.distributions.Categorical(logits=logits).sample()
    ...     monitor.update(3 * logits, outcomes)
    >>> monitor.alarm.kind, monitor.alarm.direction
    ('temperature', 'too sure')
    """

    def __init__(self, classes: int | Sequence[str], *, alpha: float = 0.05, arl: float | None = None) -> None:
        super().__init__()
        space = space_of(classes)
        self.classes = space.dim
        self._monitor = HostMonitor(space, alpha=alpha, arl=arl)
        self._due: list[tuple[Tensor, Tensor, Any]] = []
        self._waiting = 0
        self._invalid = 0

    @uncompiled
    def update(self, logits: Tensor, outcomes: Tensor) -> None:
        """Watch a batch, `(n, classes)`, and the class of each row, `(n,)`; its rows are in the order of time."""
        x = read_logits(logits, self.classes)
        y = read_outcomes(outcomes, logits)
        with torch.no_grad():
            p = torch.softmax(x, 1, dtype=torch.float64)
            rows, labels = (self._copied(part) for part in (p, y))
            event = torch.cuda.Event() if x.is_cuda else None
            if event is not None:
                event.record()
        self._due.append((rows, labels, event))
        self._waiting += rows.numel()
        if self._waiting > _MOST:
            self.settle()

    def forward(self, logits: Tensor, outcomes: Tensor) -> None:
        """Watch a batch, as `update` does."""
        self.update(logits, outcomes)

    @staticmethod
    def _copied(part: Tensor) -> Tensor:
        if not part.is_cuda:
            return part
        there = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
        return there.copy_(part, non_blocking=True)

    def settle(self) -> None:
        """Learn all rows that wait."""
        due = self._due
        self._due = []
        self._waiting = 0
        for p, y, event in due:
            if event is not None:
                event.synchronize()
            valid = valid_rows(p, y)
            self._invalid += int((~valid).sum())
            if valid.any():
                self._monitor.update_many(p[valid].numpy(), y[valid].numpy())

    @property
    def invalid(self) -> int:
        """Number of rows that were left out."""
        self.settle()
        return self._invalid

    @property
    def alarm(self) -> Alarm | None:
        """The first alarm, with what convicts the forecasts; None before."""
        return self.monitor.alarm

    @property
    def e_value(self) -> float:
        """The e-value now."""
        return self.monitor.e_value

    @property
    def monitor(self) -> HostMonitor:
        """The monitor on the CPU, with all rows learned: what `tc.save` takes."""
        self.settle()
        return self._monitor

    def reset(self) -> None:
        """Reset, as after an alarm has been handled."""
        self._due = []
        self._waiting = 0
        self._invalid = 0
        self._monitor.reset()

    def get_extra_state(self) -> Saved:
        """Return the state, for `state_dict`: arrays as tensors, so that it loads with `weights_only`."""
        return {"monitor": as_tensors(self.monitor.get_state()), "invalid": self._invalid}

    def set_extra_state(self, state: Saved) -> None:
        """Resume from a state that `get_extra_state` returned."""
        self._monitor.set_state(as_arrays(state["monitor"]))
        self._due, self._waiting, self._invalid = [], 0, int(state["invalid"])

    def extra_repr(self) -> str:
        """Return the arguments, for `repr`."""
        return f"classes={self.classes}, alpha={self._monitor.alpha:g}"
