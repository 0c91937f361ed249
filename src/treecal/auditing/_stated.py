"""Stated confidences: what each value that people or models state was worth, exactly, without bins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import known_numbers
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.measures import Labels, few_mean, read_labels

ALPHA = 0.05
_MOST_VALUES = 101
_RIGHT = dict.fromkeys(("true", "yes", "y", "correct", "c", "pass", "passed", "right", "1", "1.0"), 1.0)
_WRONG = dict.fromkeys(("false", "no", "n", "incorrect", "i", "fail", "failed", "wrong", "0", "0.0"), 0.0)
_ANSWERS = _RIGHT | _WRONG


@dataclass(frozen=True)
class Stated:
    """A value that was stated, and how often it was right.

    Attributes
    ----------
    value
        The stated probability of being right.
    rows, labels
        How often it was stated, and in how many of these rows it is known whether it was right.
    right
        How often it was right, with its 90 % interval from `low` to `high`; NaN where too few are known.
    off
        Whether chance does not explain it, even among so many values: of those called off, at most one in twenty is by
        chance, on average (Benjamini and Hochberg).
    say
        What to state in its place; the same if no value is off.
    """

    value: float
    rows: int
    labels: int
    right: float
    low: float
    high: float
    off: bool
    say: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        nan = [name for name, each in asdict(self).items() if isinstance(each, float) and math.isnan(each)]
        return asdict(self) | dict.fromkeys(nan)


def stated(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    probability: ArrayLike | None = None,
    proxy: ArrayLike | None = None,
) -> list[Stated]:
    """Return what each stated confidence was worth: an exact ledger of the values, without bins.

    Where every row is known, intervals are those of Clopper and Pearson, and p-values binomial. Where few are, each
    value has the estimate of `treecal.measures.few_labels`.

    Parameters
    ----------
    confidence
        The probability of being right that each row states; up to 101 distinct ones.
    correct
        Whether it was: 1 or 0; NaN, or masked, where it is not known.
    probability, proxy
        As in `treecal.measures.few_labels`. Without `probability` the rows that are known stand for themselves.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.choice([0.5, 0.7, 0.9], 600)
    >>> right = rng.random(600) < np.where(p == 0.9, 0.7, p)
    >>> for each in stated(p, right):
    ...     print(f"{each.value:.1f}: right {each.right:.2f}, {'say ' + str(each.say) if each.off else 'fine'}")
    0.5: right 0.47, fine
    0.7: right 0.72, fine
    0.9: right 0.70, say 0.7
    """
    p = known_numbers("confidence", confidence, ForecastError)
    y = known_numbers("correct", correct, OutcomeError)
    if p.ndim != 1 or y.shape != p.shape or not len(p):
        raise ParameterError(f"confidence has shape {p.shape} and correct {y.shape}, expected one of each a row.")
    if not (valid := (p >= 0) & (p <= 1)).all():
        raise ForecastError.at(int(np.argmin(valid)), f"is {p[~valid][0]:g}, expected a probability.", where="in row")
    known = ~np.isnan(y)
    if not (valid := ~known | (y == 0) | (y == 1)).all():
        raise OutcomeError.at(int(np.argmin(valid)), f"is {y[~valid][0]:g}, expected 1, 0 or NaN.", where="in row")
    values, home = np.unique(p, return_inverse=True)
    if len(values) > _MOST_VALUES:
        raise ParameterError(
            f"{len(values):,} distinct confidences are stated, and a table of values has room for {_MOST_VALUES}.",
            hint="tc.audit has bins.",
        )
    rows = np.bincount(home)
    labels = np.bincount(home[known], minlength=len(values))
    if probability is None:
        hits = np.bincount(home[known & (y == 1)], minlength=len(values))
        right, low, high, p_values = _exactly(hits, labels, values)
    else:
        f = None if proxy is None else known_numbers("proxy", proxy)
        right, low, high, p_values = _estimated(y, f, read_labels(known, probability), home, values)
    off = _discovered(p_values)
    says = _monotone(values, right, labels) if off.any() else values
    columns = (each.tolist() for each in (values, rows, labels, right, low, high, off, says))
    return [Stated(*row) for row in zip(*columns, strict=True)]


def advice(found: Sequence[Stated]) -> str:
    """Return what to state in place of what, in a sentence: if one value is off, all that the table moves."""
    if not any(each.off for each in found):
        return "No stated value is off by more than chance."
    moved = sorted((each for each in found if each.say != each.value), key=lambda each: (not each.off, -each.rows))
    if not moved:
        return "What is off is off by too little to state anything else."
    said = [f"{_percent(each.say)} when you mean {_percent(each.value)}" for each in moved[:5]]
    rest = f", and {len(moved) - 5} more in the table" if len(moved) > 5 else ""
    return f"Say {'; '.join(said)}{rest}."


def gathered(confidences: Array) -> Array:
    """Return confidences as they are; if they are too many for a table, as means of those that one twentieth is near.

    So it is where a model's likelihoods are its confidences. Tests of a mean, where each row has its own, are safe.
    """
    if len(np.unique(confidences)) <= _MOST_VALUES:
        return confidences
    home = np.round(20 * confidences).astype(np.int64)
    mean: Array = np.bincount(home, confidences) / np.maximum(np.bincount(home), 1)
    return mean[home]


def read_answers(name: str, cells: Sequence[Any], *, soft: bool = False) -> Array:
    """Return whether each cell says right, 1, or wrong, 0; NaN where it says nothing. `soft` ones may be between."""
    found = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)):
            continue
        value = _ANSWERS.get(str(cell).strip().lower())
        if value is None and soft:
            value = _number(cell)
        if value is None or not 0 <= value <= 1:
            hint = "true or false, 1 or 0, yes or no, correct or incorrect, pass or fail; empty where it is not known."
            raise OutcomeError.at(row + 1, f"has {name} {cell!r}.", where="in row", hint=hint)
        found[row] = value
    return found


def read_confidences(
    name: str, cells: Sequence[Any], *, scale: float | None = None, words: Mapping[str, float] | None = None
) -> Array:
    """Return stated confidences as probabilities: from 0 to 1, or per cents, or words that a table has."""
    table = {word.strip().lower(): value for word, value in (words or {}).items()}
    found = np.empty(len(cells))
    marked = np.zeros(len(cells), bool)
    for row, cell in enumerate(cells):
        text = "" if cell is None else str(cell).strip().lower()
        value = table.get(text)
        marked[row] = value is not None or text.endswith("%")
        if value is None:
            value = _number(text.removesuffix("%").strip())
            value = value / 100 if value is not None and text.endswith("%") else value
        if value is None or not value >= 0:
            known = f", and the table has {', '.join(table)}" if table else ""
            hint = f"a number, per cents, or words with a table{known}: words={{'likely': 0.7}}, --words likely=0.7."
            raise ForecastError.at(row + 1, f"has {name} {cell!r}.", where="in row", hint=hint)
        found[row] = value
    plain = found[~marked]
    most = float(plain.max(initial=0.0))
    if scale is None:
        if 1 < most <= 10:
            raise ParameterError(
                f"{name} goes up to {most:g}: it may be out of 10 or in per cents.", hint="scale=10 or scale=100."
            )
        scale = 100.0 if most > 10 else 1.0
    if not scale >= max(most, 1.0):
        raise ParameterError.expected("scale", scale, f"what stands for certainty, {most:g} or more")
    found[~marked] = plain / scale
    return found


def _number(cell: Any) -> float | None:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _exactly(hits: Integers, labels: Integers, values: Array) -> tuple[Array, Array, Array, Array]:
    from scipy.special import bdtr, bdtrc, betaincinv

    with np.errstate(invalid="ignore", divide="ignore"):
        right = hits / labels
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), labels - hits + 1, 0.05), 0.0)
    high = np.where(hits < labels, betaincinv(hits + 1, np.maximum(labels - hits, 1), 0.95), 1.0)
    below = bdtr(hits, labels, values)
    above = np.where(hits > 0, bdtrc(np.maximum(hits - 1, 0), labels, values), 1.0)
    p_values = np.where(labels > 0, np.minimum(2 * np.minimum(below, above), 1.0), 1.0)
    return right, low, high, p_values


def _estimated(
    y: Array, proxy: Array | None, labels: Labels, home: Integers, values: Array
) -> tuple[Array, Array, Array, Array]:
    from scipy.special import ndtr, ndtri

    found = np.full((4, len(values)), np.nan)
    found[3] = 1.0
    of_label = home[labels.at]
    for k, value in enumerate(values):
        own = of_label == k
        if own.sum() < 2:
            continue
        rows = np.flatnonzero(home == k)
        at = np.searchsorted(rows, labels.at[own])
        few = few_mean(y[rows], None if proxy is None else proxy[rows], Labels(at, labels.weight[own], len(rows)), 0.9)
        wide = few.interval
        middle = (wide.low + wide.high) / 2  # of an interval that skewness has moved
        far = abs(middle - value) / few.half * float(ndtri(0.95)) if few.half > 0 else math.inf
        found[:, k] = np.clip([wide.value, wide.low, wide.high, 2 * float(ndtr(-far))], 0, 1)
    return found[0], found[1], found[2], found[3]


def _discovered(p_values: Array) -> Any:
    """Return which p-values are discoveries (Benjamini and Hochberg)."""
    ranked = np.sort(p_values)
    passed = np.flatnonzero(ranked <= ALPHA * np.arange(1, len(ranked) + 1) / len(ranked))
    return p_values <= (ranked[passed[-1]] if len(passed) else -1.0)


def _monotone(values: Array, right: Array, labels: Integers) -> Array:
    """Return what to say: how often each value was right, two rows more at the value itself, never falling, rounded."""
    from scipy.optimize import isotonic_regression

    seen = np.where(np.isnan(right), 0.0, right)
    count = np.where(np.isnan(right), 0, labels)
    mean = (seen * count + 2 * values) / (count + 2)
    found = isotonic_regression(mean, weights=count + 2.0).x
    coarse = np.round(found * 20) / 20
    rounded: Array = np.where((found > 0.95) | (found < 0.05), np.round(found, 2), coarse)
    return rounded


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
