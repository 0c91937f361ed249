"""CalibrationError: how calibrated a model's logits are, counted where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from treecal._validate import whole_number
from treecal.auditing import AuditCounts, Calibration, Groups
from treecal.exceptions import ParameterError
from treecal.io import Problems
from treecal.measures import MOST_BINS
from treecal.torch import _tally as tally
from treecal.torch._read import class_names, read_logits, read_outcomes


class CalibrationError(nn.Module):
    """How calibrated a classifier is, from its logits, batch by batch: what `tc.audit` says, digit for digit.

    A metric as those of torchmetrics: `update`, `compute`, `reset`, `merge_state`. It keeps no rows. Its state is
    `O(bins·classes)` integers on the device, in buffers: they are in `state_dict`, move with `to`, and add up in any
    order. `update` reads the logits once and does not wait for the device.

    The probabilities are the softmax of the logits, in float64 for float64 logits and in float32 for all others
    (float32, bfloat16, float16); `probabilities` returns them. For these, `compute` equals
    `tc.audit(metric.probabilities(logits), outcomes, bins=bins, exact=False).whole` in all digits: rows are counted,
    and probabilities and scores are summed, as integers. (Logarithms differ between devices in their last bit; the log
    score is rounded to nine decimals, as in every audit.) Between devices, the softmax differs in its last bits.

    A row with a logit that is NaN or ∞, with no finite one, or with an outcome that is not a class, is left out and
    counted in `invalid`: to raise an error would wait for the device.

    With `torch.distributed`, `compute` adds up the rows of all processes, and every process gets the same result. Keep
    the metric outside the model that `DistributedDataParallel` wraps, which would overwrite its buffers by those of one
    process.

    Parameters
    ----------
    classes
        Number of classes, or their names.
    bins
        Number of bins of equal width; a probability of 1 lies in the last one.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> metric = CalibrationError(3)
    >>> for _ in range(4):
    ...     logits = 2 * torch.randn(1000, 3)
    ...     outcomes = torch.distributions.Categorical(logits=logits / 2).sample()  # as if half as sure
    ...     metric.update(logits, outcomes)
    >>> found = metric.compute()
    >>> found.rounds, round(found.top_label.ece, 3), round(found.brier, 3)
    (4000, 0.15..., 0.56...)
    >>> found.verdict.advice
    'Too sure: a temperature of about ... Use tc.AutoCorrector.'
    """

    counts: Tensor

    def __init__(self, classes: int | Sequence[str], bins: int = 10) -> None:
        super().__init__()
        self.classes = class_names(classes)
        self.bins = whole_number("bins", bins, least=1, most=MOST_BINS)
        self.register_buffer("counts", torch.zeros(tally.size_of(len(self.classes), self.bins), dtype=torch.int64))

    @property
    def invalid(self) -> int:
        """Number of rows that were left out."""
        return int(self.counts[-1])

    def update(self, logits: Tensor, outcomes: Tensor) -> None:
        """Count a batch.

        Parameters
        ----------
        logits
            Of shape `(n, classes)`, or `(n, classes, ...)` as torch's losses take them.
        outcomes
            The class of each row, `(n,)`, or `(n, ...)`: whole numbers from 0.
        """
        x = read_logits(logits, len(self.classes))
        y = read_outcomes(outcomes, logits)
        with torch.no_grad():
            tally.add(self._sums(), x, y)

    def forward(self, logits: Tensor, outcomes: Tensor) -> None:
        """Count a batch, as `update` does."""
        self.update(logits, outcomes)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities that are counted, `(n, classes)`: float64 for float64 logits, otherwise float32."""
        with torch.no_grad():
            return tally.softmax(read_logits(logits, len(self.classes)))

    def compute(self) -> Calibration:
        """Return how calibrated all rows are, those of other processes included; the state stays as it is."""
        counts = self.counts
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            counts = counts.clone()
            torch.distributed.all_reduce(counts)
        sums = tally.views(counts, self.bins)
        if not int(sums.rows[0]):
            raise ParameterError(f"no row is valid: {int(sums.rows[2])} were left out.", hint="update(...) first.")
        found = AuditCounts(Groups(()), tally.as_cells(sums), None)
        return found.audit("logits", self.classes, self.classes, Problems("logits", "skip")).whole

    def reset(self) -> None:
        """Forget all rows."""
        self.counts.zero_()

    def merge_state(self, other: Self | Mapping[str, Any]) -> None:
        """Add the rows of another metric of the same classes and bins, or of its `state_dict`."""
        state = other.state_dict() if isinstance(other, CalibrationError) else other
        counts = state.get("counts") if isinstance(state, Mapping) else None
        if not isinstance(counts, Tensor) or counts.shape != self.counts.shape or counts.dtype != torch.int64:
            raise ParameterError(
                f"the other state is not one of {len(self.classes)} classes and {self.bins} bins.",
                hint="merge metrics with the same classes and bins.",
            )
        self.counts.add_(counts.to(self.counts.device))

    def _sums(self) -> tally.Sums:
        return tally.views(self.counts, self.bins)

    def extra_repr(self) -> str:
        """Return the arguments, for `repr`."""
        return f"classes={len(self.classes)}, bins={self.bins}"
