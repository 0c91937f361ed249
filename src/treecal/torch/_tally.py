"""The counts of a calibration error on any device, with torch's own operations: integers alone.

A probability is rounded to a multiple of 2^-51, as the audit does, by adding 2 to it. The sums of these integers are
kept in two halves of 26 bits, which no stream of fewer than 2^36 rows overflows: so states are added by adding tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from treecal.auditing import DIGITS, LOG_SCALE, MAGIC, SCORES, BinCounts
from treecal.torch._read import valid_rows

TWO = int(np.float64(2.0).view(np.int64))
HALF = 26
LOW = (1 << HALF) - 1
MOST_ROWS = 2**36
WEIGHT, HITS, HIGH, LOWS = range(4)
_AT_ONCE = 2**22  # probabilities that are held at a time; on a GPU eight times as many


class Sums(NamedTuple):
    """What is counted: int64, so that the order of rows, of batches and of processes does not matter.

    Attributes
    ----------
    cells
        `(4, classes + 1, bins)`: rows, hits, and the upper and lower halves of the sums of probabilities. The last
        class is the most likely one. In bin 0, rows are not counted, and sums are those of all bins: what is in it
        follows, and for many classes nearly all probabilities are.
    scores
        `(2, 4)`: the halves of the sums of the audit's scores.
    rows
        `(3,)`: valid rows, those whose outcome had forecast 0, and invalid rows.
    """

    cells: Tensor
    scores: Tensor
    rows: Tensor


def size_of(classes: int, bins: int) -> int:
    """Return how many integers the sums are."""
    return 4 * (classes + 1) * bins + 2 * (len(SCORES) - 1) + 3


def views(counts: Tensor, bins: int) -> Sums:
    """Return the sums that a tensor holds one after the other."""
    cells = len(counts) - 2 * (len(SCORES) - 1) - 3
    return Sums(counts[:cells].view(4, -1, bins), counts[cells:-3].view(2, -1), counts[-3:])


def softmax(logits: Tensor) -> Tensor:
    """Return probabilities: in float64 for float64, and in float32 for all other logits."""
    return torch.softmax(logits, -1, dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)


def add(sums: Sums, logits: Tensor, outcomes: Tensor) -> None:
    """Add rows, in place."""
    step = max(1, _AT_ONCE * (1 if logits.is_cpu else 8) // logits.shape[1])
    for start in range(0, len(logits), step):
        _add(sums, softmax(logits[start : start + step]).double(), outcomes[start : start + step])


def _add(sums: Sums, p: Tensor, y: Tensor) -> None:
    _, width, bins = sums.cells.shape
    classes = width - 1
    valid = valid_rows(p, y)
    count = valid.long()
    y = torch.where(valid, y, 0).long()
    p = torch.where(valid[:, None], p, 0.0)
    most, top = p.max(dim=1)  # of equal ones the first
    classes_of = torch.arange(classes, device=p.device).expand(p.shape)
    # Above the lowest bin lie as many probabilities of a row as there are bins, at most: the others are only added up.
    large, classes_of = p.topk(bins, sorted=False) if classes > bins else (p, classes_of)
    each = torch.cat([large, most[:, None]], dim=1)
    bin_ = _bin(each, bins)
    cell = bin_ + bins * torch.cat([classes_of, torch.full_like(top, classes)[:, None]], dim=1)
    amount = _digits(each)
    new = torch.zeros_like(sums.cells)
    rows = count[:, None].expand(cell.shape)
    for plane, values in ((WEIGHT, rows), (HIGH, amount >> HALF), (LOWS, amount & LOW)):
        new[plane].view(-1).scatter_add_(0, cell.reshape(-1), values.reshape(-1))
    given = p.gather(1, y[:, None])[:, 0]
    home = _bin(given, bins)
    new[HITS].view(-1).scatter_add_(0, home + bins * y, count)
    new[HITS, classes].scatter_add_(0, bin_[:, -1], count * (top == y))
    every = torch.cat([_digits(p), amount[:, -1:]], dim=1)
    new[HIGH, :, 0] = (every >> HALF).sum(dim=0)
    new[LOWS, :, 0] = (every & LOW).sum(dim=0)
    new[WEIGHT, :, 0] = 0
    sums.cells.add_(new)
    sums.scores.add_(_scores(p, given, valid))
    impossible = valid & (given <= 0)
    sums.rows.add_(torch.stack([count.sum(), impossible.sum(), (~valid).sum()]))


def _scores(p: Tensor, given: Tensor, valid: Tensor) -> Tensor:
    """Return the sums of the scores: as the audit computes them, in the same order of operations."""
    square = p * p
    large = (square + 2.0) - 2.0
    small = ((square - large) + MAGIC) - MAGIC
    squares = large.sum(dim=1) + small.sum(dim=1)  # neither sum is rounded
    brier = (squares + 1.0) / 2 - given
    log = torch.where(given > 0, torch.clamp(-torch.log(given), 0.0, LOG_SCALE) / LOG_SCALE, 0.0)
    each = torch.stack([brier, brier * brier, log, log * log])
    digits = torch.where(valid, _digits(torch.where(valid, each, 0.0)), 0)
    return torch.stack([(digits >> HALF).sum(dim=1), (digits & LOW).sum(dim=1)])


def _digits(values: Tensor) -> Tensor:
    """Return numbers from 0 to 2 in units of 2^-51, rounded."""
    return (values + 2.0).view(torch.int64) - TWO


def _bin(p: Tensor, bins: int) -> Tensor:
    """Return the bin of each probability: `treecal.measures.bin_of`."""
    guess = torch.floor(p * bins)
    found = guess + (p >= (guess + 1) / bins).double() - (p < guess / bins).double()
    return found.clamp(max=bins - 1).long()


def as_cells(sums: Sums) -> BinCounts:
    """Return the counts as those of one group of an audit."""
    planes, scores, rows = (part.cpu().numpy() for part in sums)
    weight, hits, high, low = (plane.astype(object) for plane in planes)  # Python's integers do not overflow
    total = (high << HALF) + low
    total[:, 0] -= total[:, 1:].sum(axis=1)
    weight[:, 0] = int(rows[0]) - weight[:, 1:].sum(axis=1)
    score = (scores[0].astype(object) << HALF) + scores[1]
    score = np.append(score, 0)  # of weights, which there are none
    one = 1 << DIGITS
    parts = weight, hits, total // one, total % one, score // one, score % one
    found = [part.astype(np.int64)[None] for part in parts]
    found += [rows[1:2].copy(), np.zeros(1, np.int64)]
    return BinCounts(*found)
