"""Few labels: estimates where only rows that were drawn have outcomes, and all rows have a proxy.

Row i got its outcome with the known probability `π_i`, and `ξ_i` says whether it did. Whatever the proxy is, the mean
of `c_i + (ξ_i/π_i)·(m_i − c_i)` has no bias for the mean of `m`, if `c` is known for all rows: here
`c = a + λ·m(proxy)`, tuned for the least variance (PPI++). `λ = 0` are the labels alone: a proxy can only help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import finite_array, fraction, known_numbers, positive_number, whole_number
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.measures._levels import AT_ZERO, Interval, Law, square_interval, unseen
from treecal.measures._log import read_forecasts, sum_by

_CELL = 25  # labels in a cell of the calibration error, about
_CELLS = 15
_TURNED = 0.4  # labelled rows that are thought to have been seen besides, each turned round
_SIGMAS = 6  # how far the rows that labels stand for may be from those there are, before it cannot be chance


@dataclass(frozen=True)
class Estimate:
    """What a measure is over all rows, of which few are labelled.

    Attributes
    ----------
    interval
        The estimate by labels and proxy, with its interval.
    alone
        The same by the labels alone.
    proxy
        The measure if the proxies were outcomes, which has an unknown bias; None without a proxy.
    labels, rows
        Number of labelled rows, and of all.
    trust
        λ: how far the proxy is believed. 0 is not at all, and below 0 its opposite.
    fixed
        The share of the variance that no further label removes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> right = (rng.random(5000) < 0.7).astype(float)
    >>> judge = np.where(rng.random(5000) < 0.95, right, 1 - right)
    >>> right[rng.random(5000) >= 0.05] = np.nan
    >>> found = estimate(right, probability=0.05, proxy=judge)
    >>> print(found.interval)
    0.705, 90 % interval 0.6815 to 0.7299
    >>> print(found.alone)
    0.7099, 90 % interval 0.6604 to 0.7579
    >>> round(found.worth, 1), round(found.after(300), 3)
    (4.1, 0.018)
    """

    interval: Interval
    alone: Interval
    proxy: float | None
    labels: int
    rows: int
    trust: float = 0.0
    fixed: float = 0.0

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.interval.high - self.interval.low) / 2

    @property
    def worth(self) -> float:
        """As many labels as one is worth beside the proxy: the labels alone would need so many times their number."""
        alone = (self.alone.high - self.alone.low) / 2
        return (alone / self.half) ** 2 if self.half > 0 else 1.0

    def after(self, labels: int) -> float:
        """Return half the width of the interval, about, once so many further rows are labelled.

        Parameters
        ----------
        labels
            The number of further labels, drawn as those that are there.
        """
        more = whole_number("labels", labels, least=0)
        total = min(self.labels + more, self.rows)
        return self.half * math.sqrt(self.fixed + (1 - self.fixed) * self.labels / total)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        ends = {name: [each.low, each.high] for name, each in (("interval", self.interval), ("alone", self.alone))}
        return {
            "estimate": self.interval.value,
            "interval": ends["interval"],
            "labels_alone": {"estimate": self.alone.value, "interval": ends["alone"]},
            "proxy_alone": self.proxy,
            "labels": self.labels,
            "rows": self.rows,
            "trust": self.trust,
            "a_label_is_worth": self.worth,
            "half_width_with_twice_the_labels": self.after(self.labels),
        }


class Labels(NamedTuple):
    """Which of `rows` rows are labelled, `(l,)`, and the weight `1/π` of each."""

    at: Integers
    weight: Array
    rows: int


class _Tuned(NamedTuple):
    """A mean and what its interval is made of.

    Its value; how far its interval's middle is from that; what an event that was not seen would move it by; its
    variance, and the part of that without labels; λ; and degrees of freedom.
    """

    value: float
    lean: float
    event: float
    variance: float
    fixed: float
    trust: float
    freedom: float


def read_labels(labelled: Any, probability: ArrayLike) -> Labels:
    """Return which rows are labelled, given the probability of each, or raise."""
    rows = len(labelled)
    at = np.flatnonzero(labelled)
    given = np.asarray(probability)
    if given.dtype.kind not in "biuf" or given.shape not in ((), (rows,)):
        raise ParameterError(f"probability has shape {given.shape}, expected a number, or one for each of {rows} rows.")
    pi = np.broadcast_to(given, (rows,))[at].astype(np.float64)
    if not (valid := (pi > 0) & (pi <= 1)).all():
        row = int(at[np.argmin(valid)])
        raise ParameterError(
            f"probability is {pi[np.argmin(valid)]:.6g} in row {row}, expected a number above 0, and 1 at most.",
            hint="it is the chance with which the row was drawn to be labelled: tc.sample_labels draws, and gives it.",
        )
    if len(at) < 2:
        raise OutcomeError(f"{len(at)} of {rows} rows are labelled, expected two or more.")
    weight = 1 / pi
    stand_for = float(weight.sum())
    spread = math.sqrt(float(weight @ (weight - 1)))
    if abs(stand_for - rows) > _SIGMAS * spread + 1e-6 * rows:
        raise ParameterError(
            f"with these probabilities {len(at):,} labels stand for {stand_for:,.0f} rows, and there are {rows:,}: "
            "the labelled rows were not drawn with them.",
            hint="labels that people chose are no sample, and say nothing of other rows. Draw rows by tc.sample_labels "
            "and label all of these.",
        )
    return Labels(at, weight, rows)


def estimate(
    values: ArrayLike, *, probability: ArrayLike, proxy: ArrayLike | None = None, level: float = 0.9
) -> Estimate:
    """Estimate the mean of values that few rows have, by those and a proxy that all have: PPI++.

    The interval is a t-interval of the terms of the sum, moved by their skewness, and never narrower than what may have
    happened in rows that were not drawn; its coverage does not depend on what the proxy is.

    Parameters
    ----------
    values
        The value of each row; NaN where it is not known.
    probability
        With which each row, or every one, was drawn to be labelled.
    proxy
        What stands for the value of each row, such as a judge's opinion.
    level
        Coverage of the intervals.

    Examples
    --------
    >>> found = estimate([1.0, 0.0, np.nan, np.nan, 1.0, np.nan, 0.0, np.nan], probability=0.5)
    >>> found.interval.value, found.labels, found.rows
    (0.5, 4, 8)

    References
    ----------
    Angelopoulos, Duchi and Zrnic, "PPI++: efficient prediction-powered inference", 2023.
    """
    m = known_numbers("values", values)
    if m.ndim != 1:
        raise ParameterError(f"values have shape {m.shape}, expected one for each row.")
    f = None if proxy is None else finite_array("proxy", proxy, ndim=1)
    if f is not None and len(f) != len(m):
        raise ParameterError(f"there are {len(m)} rows and {len(f)} proxies, expected one each.")
    level = fraction("level", level)
    labels = read_labels(~np.isnan(m), probability)
    if not np.isfinite(m[labels.at]).all():
        raise ParameterError("values hold infinite ones, expected numbers, or NaN where they are not known.")
    return few_mean(m, f, labels, level)


def few_labels(
    P: ArrayLike,
    y: ArrayLike,
    *,
    probability: ArrayLike,
    proxy: ArrayLike | None = None,
    level: float = 0.9,
) -> dict[str, Estimate]:
    """Estimate accuracy, scores and calibration error of forecasts, where few rows have outcomes.

    "accuracy", "brier" and "log_score" are means. "too_sure" is the mean probability of the most likely class less the
    accuracy. "calibration_error" is the root mean square gap of that class in bins of about 25 labels, without noise,
    as in `debiased_ece`.

    Parameters
    ----------
    P
        Forecasts, `(n, d)`, or the probability of class 1 of two, `(n,)`.
    y
        The class of each outcome; NaN where it is not known.
    probability, level
        As in `estimate`.
    proxy
        What stands for each outcome: a class, or a probability of each class, `(n, d)`; of class 1 of two, `(n,)`.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> p = rng.random(10_000)
    >>> y = (rng.random(10_000) < 0.25 + p / 2).astype(float)               # p is too sure
    >>> judge = np.where(rng.random(10_000) < 0.9, y, 1 - y)
    >>> y[rng.random(10_000) >= 0.04] = np.nan
    >>> for name, found in few_labels(p, y, probability=0.04, proxy=judge).items():
    ...     print(f"{name}: {found.interval.value:.3f} ± {found.half:.3f}, labels alone ± "
    ...           f"{(found.alone.high - found.alone.low) / 2:.3f}")
    accuracy: 0.608 ± 0.025, labels alone ± 0.040
    too_sure: 0.142 ± 0.024, labels alone ± 0.040
    brier: 0.502 ± 0.028, labels alone ± 0.044
    log_score: 0.756 ± 0.039, labels alone ± 0.072
    calibration_error: 0.159 ± 0.024, labels alone ± 0.043
    """
    forecasts = read_forecasts(P)
    n, classes = forecasts.shape
    given = known_numbers("outcomes", y, OutcomeError)
    if given.shape != (n,):
        raise OutcomeError(f"outcomes have shape {given.shape}, expected a class for each of {n} rows, or NaN.")
    known = ~np.isnan(given)
    outcomes = np.where(known, given, 0).astype(np.int64)
    if (wrong := (outcomes != np.where(known, given, 0)) | (outcomes < 0) | (outcomes >= classes)).any():
        row = int(np.argmax(wrong))
        raise OutcomeError.at(row, f"is {given[row]:g}, expected a class from 0 to {classes - 1}.", where="in row")
    level = fraction("level", level)
    soft = None if proxy is None else read_proxy(proxy, n, classes)
    return few_measures(forecasts, outcomes, soft, read_labels(known, probability), level)


def read_proxy(proxy: ArrayLike, rows: int, classes: int) -> Array:
    """Return proxies as probabilities of each class, `(n, d)`."""
    given = np.asarray(proxy)
    if given.shape == (rows,) and given.dtype.kind in "biuf":
        numbers = finite_array("proxy", given)
        whole = (numbers == np.trunc(numbers)).all()
        if not (numbers.min() >= 0 and numbers.max() <= (classes - 1 if whole else 1)) or not (whole or classes == 2):
            hint = f"a class from 0 to {classes - 1}; or the probability of each class, (n, {classes})."
            raise ParameterError(f"proxies range from {numbers.min():g} to {numbers.max():g}.", hint=hint)
        return np.eye(classes)[numbers.astype(np.int64)] if whole else np.column_stack([1 - numbers, numbers])
    if given.shape != (rows, classes):
        raise ParameterError(f"proxy has shape {given.shape}, expected ({rows},), classes, or ({rows}, {classes}).")
    try:
        return read_forecasts(given)
    except ForecastError as error:
        raise ParameterError(f"a proxy is no probability: {error}") from None


def few_measures(
    forecasts: Array, outcomes: Integers, proxies: Array | None, labels: Labels, level: float
) -> dict[str, Estimate]:
    """Return the estimate of each measure, given valid rows; outcomes count where they are labelled."""
    n = len(forecasts)
    rows = np.arange(n)
    top = forecasts.argmax(axis=1)
    sure = forecasts[rows, top]
    right = (outcomes == top).astype(np.float64)
    judged = None if proxies is None else proxies[rows, top]
    squares = (forecasts**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = -np.log(forecasts)
        log_proxy = None if proxies is None else np.where(proxies > 0, proxies * logs, 0.0).sum(axis=1)
    values = {
        "accuracy": (right, judged),
        "too_sure": (sure - right, None if judged is None else sure - judged),
        "brier": (
            squares - 2 * forecasts[rows, outcomes] + 1,
            None if proxies is None else squares - 2 * (forecasts * proxies).sum(axis=1) + 1,
        ),
        "log_score": (logs[rows, outcomes], log_proxy),
    }
    finite = {
        name: (m, f)
        for name, (m, f) in values.items()
        if np.isfinite(m[labels.at]).all() and (f is None or np.isfinite(f).all())
    }
    at = labels.at
    seen = (forecasts[at], logs[at], top[at])
    outcome = _turns(*seen, outcomes[at])
    proxy = outcome if proxies is None else _turns(*seen, proxies[at].argmax(axis=1))
    found = {name: few_mean(m, f, labels, level, (outcome[name], proxy[name])) for name, (m, f) in finite.items()}
    return found | {"calibration_error": _calibration_error(sure, right, judged, labels, level)}


def _turns(forecasts: Array, logs: Array, top: Integers, said: Integers) -> dict[str, Array]:
    """Return how much each measure would fall in each row if not this class was said, but the likeliest other one."""
    rows = np.arange(len(top))
    left = forecasts.copy()
    left[rows, said] = -1
    other = left.argmax(axis=1)
    hit = (said == top) * 1.0 - (other == top)
    with np.errstate(invalid="ignore"):
        surprise = logs[rows, said] - logs[rows, other]
    return {
        "accuracy": hit,
        "too_sure": -hit,
        "brier": -2 * (forecasts[rows, said] - forecasts[rows, other]),
        "log_score": np.where(np.isfinite(surprise), surprise, 0.0),
    }


def few_mean(
    m: Array, f: Array | None, labels: Labels, level: float, turns: tuple[Array, Array] | None = None
) -> Estimate:
    """Return the estimate of a mean of valid rows.

    `turns` is how much the values of labelled rows, and their proxies, would fall if they were turned round. By default
    what has two values is turned to the other one; a proxy of more is put where it says nothing, at its mean.
    """
    known = m[labels.at]
    if turns is None:
        turn = _to_other(known, 0.0 * known)
        turns = turn, turn if f is None else _to_other(f[labels.at], f[labels.at] - f.mean())
    alone = _mean(known, None, labels, *turns)
    both = alone if f is None else _mean(known, f, labels, *turns)
    own, only = (_interval(tuned, known, labels, level) for tuned in (both, alone))
    proxy = None if f is None else float(f.mean())
    return Estimate(own, only, proxy, len(known), labels.rows, both.trust, both.fixed)


def _to_other(values: Array, otherwise: Array) -> Array:
    """Return how much each value would fall if turned to the other one of two; if there are more, what is given."""
    ends = values.min(), values.max()
    return 2 * values - sum(ends) if np.isin(values, ends).all() else otherwise


def _mean(m: Array, f: Array | None, labels: Labels, turn: Array, turn_of_proxy: Array) -> _Tuned:
    """Return the mean of all rows by those labelled, with `f` of all rows as a control."""
    at, w, n = labels
    tuning = w * (w - 1)  # the variance is that of all rows, and E[(1/π − 1)·residual²]
    q = tuning if tuning.any() else w
    q = q / q.sum()
    centre = float(q @ m)
    trust = 0.0
    leverage = q
    known = np.zeros(len(m)) if f is None else f[at]
    if f is not None:
        off = known - float(q @ known)
        spread = float(q @ off**2)
        if spread > 1e-12 * float(f.var() + known.var() + 1e-300):
            trust = float(q @ (off * (m - centre))) / spread
            leverage = q * (1 + off**2 / spread)
    control = np.zeros(n) if f is None else trust * (f - float(q @ known))
    rest = m - centre - control[at]
    value = centre + float(control.mean()) + float(w @ rest) / n
    wide = rest / (1 - np.minimum(leverage, 0.75))  # residuals are smaller than errors, by what was fitted (HC3)
    terms = control - control.mean()
    # A good proxy is wrong in few labelled rows, or in none, and other surprises are as rare: what was seen is not all.
    turned = rest - turn if f is None else rest + trust * turn_of_proxy
    drawn = float(tuning @ wide**2) + _TURNED * float(tuning @ turned**2) / len(m)
    whole = float(terms @ terms) + 2 * float(terms[at] @ (w * wide)) + float(w @ wide**2) + drawn
    whole -= float(w @ wide) ** 2 / n
    variance = max(whole, 0.0) / n / (n - 1)
    # If k rare events were seen, k + 1/2 is the middle of how many were to be expected: for events of all sizes and
    # signs that is half the third moment over the second above what was seen.
    lean = float((w * tuning) @ wide**3) / whole / 2 if whole > 0 else 0.0
    caught = rest - max(1 - abs(trust), 0.0) * turn  # what remains of a surprise that the proxy shares
    event = float((w - 1) @ np.maximum(np.abs(turned), np.abs(caught))) / len(m)
    fixed = max(whole - drawn, 0.0) / whole if whole > 0 else 0.0
    kish = float(w.sum()) ** 2 / float(w @ w)
    # What a variance is worth that a few residuals make up: for normal ones as many degrees of freedom as labels, and
    # 2k for k of one size; one more, as in the law of Jeffreys for the mean of a count k.
    squares = (w * wide) ** 2
    sum_of = float(squares.sum())
    varied = float(squares @ squares) - sum_of**2 / len(m)
    worth = 2 * sum_of**2 / varied if varied > 0 else math.inf
    freedom = max(min(kish - 1 - (trust != 0), worth + 1), 1.0)
    return _Tuned(value, lean / n, event / n, variance, min(fixed, 1.0), trust, freedom)


def _interval(tuned: _Tuned, m: Array, labels: Labels, level: float) -> Interval:
    from scipy.special import stdtrit  # imported when needed: SciPy takes long

    half = float(stdtrit(tuned.freedom, (1 + level) / 2)) * math.sqrt(tuned.variance)
    # If no event was seen, more than so many are unlikely, by the mid-p of a count of 0.
    half = max(half, -math.log(1 - level) * tuned.event)
    note = ""
    if np.ptp(m) <= 1e-12 * np.abs(m).max():
        half = max(half, unseen(level) / len(m))
        note = "all labels agree: what is rarer than one in so many was not seen"
    middle = tuned.value + tuned.lean
    return Interval(tuned.value, middle - half, middle + half, level, note)


def _calibration_error(sure: Array, right: Array, judged: Array | None, labels: Labels, level: float) -> Estimate:
    """Return the root mean square gap of the most likely class over cells of its probability."""
    cell, cells = _cells(sure, labels)
    alone, _ = _square(sure, right, None, labels, cell, cells)
    both, trust = (alone, 0.0) if judged is None else _square(sure, right, judged, labels, cell, cells)
    proxy = None
    if judged is not None:
        size = sum_by(cell, np.ones(len(cell)), cells)
        gap = sum_by(cell, judged - sure, cells) / np.maximum(size, 1)
        proxy = math.sqrt(float(size @ gap**2) / len(cell))
    own, only = (_root(law, len(labels.at), level) for law in (both, alone))
    return Estimate(own, only, proxy, len(labels.at), labels.rows, trust)


def _root(law: Law, labels: int, level: float) -> Interval:
    value = math.sqrt(max(law.value, 0.0))
    low, high = (math.sqrt(each) for each in square_interval(law, level))
    if high - low <= 1e-9:  # all labels agree
        reach = unseen(level) / labels
        low = max(value - reach, 0.0)
        high = value + reach
    return Interval(value, low, high, level, AT_ZERO if low <= 0 else "")


def _cells(sure: Array, labels: Labels) -> tuple[Integers, int]:
    """Return the cell of each row: its value, if few values are stated; else cells of about as many labels each."""
    most = min(max(len(labels.at) // _CELL, 1), _CELLS)
    values, cell = np.unique(sure, return_inverse=True)
    if len(values) <= most:
        return cell, len(values)
    known = np.sort(sure[labels.at])
    cuts = np.unique(known[np.arange(1, most) * len(known) // most])
    return np.searchsorted(cuts, sure, side="right"), len(cuts) + 1


def _square(
    sure: Array, right: Array, judged: Array | None, labels: Labels, cell: Integers, cells: int
) -> tuple[Law, float]:
    """Return the law of the mean squared gap of the cells, and λ."""
    at, w, n = labels
    home = cell[at]
    count = sum_by(home, np.ones(len(at)), cells)
    total = sum_by(home, w, cells)
    full = count > 1
    gap = (right - sure)[at]
    control = np.zeros(n) if judged is None else judged - sure
    size = sum_by(cell, np.ones(n), cells)
    with np.errstate(invalid="ignore", divide="ignore"):

        def inside(values: Array) -> Array:
            return np.where(full, sum_by(home, w * values, cells) / total, 0.0)

        off = control[at] - inside(control[at])[home]
        used = full[home]
        q = np.where(used, w * np.maximum(w - 1, 1e-9), 0.0)
        spread = float(q @ off**2)
        own = gap - inside(gap)[home]
        trust = float(q @ (off * own)) / spread if spread > 0 else 0.0
        rest = gap - trust * control[at]
        mean = inside(rest)
        rest = rest - mean[home]
        over_rows = sum_by(cell, control, cells) / np.maximum(size, 1)
        found = np.where(full, mean + trust * over_rows, 0.0)
        noise = sum_by(home, (w * rest) ** 2, cells) / total**2 * count / (count - 1)
        moved = trust**2 * sum_by(cell, (control - over_rows[cell]) ** 2, cells) / np.maximum(size, 1) ** 2
        noise = np.where(full, noise + moved, 0.0)
        # Where a good proxy is wrong in few labels of a cell, or in none: one more, as wrong as knowing nothing is.
        known_part = max(float(w[used] ** 2 @ (own**2 - rest**2)[used]), 0.0) / float(w[used] @ w[used] or 1.0)
        rare = np.where(full, known_part * sum_by(home, w * (w - 1), cells) / total**2 / count, 0.0)
    share = size / n
    plain = float(share @ found**2)
    spent = share * (noise + rare)
    scale = float(share * found**2 @ spent) / plain if plain > 0 else 0.0
    freedom = float(spent @ spent) / scale**2 if scale > 0 else 0.0
    return Law(float(share @ (found**2 - noise)), plain, scale, freedom), trust


class LabelWeights(NamedTuple):
    """What rounds with labels weigh.

    Attributes
    ----------
    weights
        The weight of each.
    clipped
        How many would have weighed more: if that is not 0, rounds that are rarely labelled count too little.
    """

    weights: Array
    clipped: int


def label_weights(probability: ArrayLike, *, typical: float | None = None, most: float = 10.0) -> LabelWeights:
    """Return the weights with which a corrector learns from labels that were drawn: `typical/probability`, clipped.

    For `update(y, weight=...)`, `update_many(..., weights=...)` and `fit`. `1/probability` itself would make a
    corrector believe that every unlabelled row had been seen, and so follow its few labels too closely; these weigh 1
    on average.

    Parameters
    ----------
    probability
        With which each round was drawn to be labelled.
    typical
        The probability at which a label weighs 1; by default such that these weigh 1 on average.
    most
        The largest weight: a single label should not outweigh ten.

    Examples
    --------
    >>> label_weights([0.02, 0.02, 0.2]).weights.round(3)
    array([1.429, 1.429, 0.143])
    >>> label_weights([0.02, 0.0005], typical=0.02)
    LabelWeights(weights=array([ 1., 10.]), clipped=1)
    """
    pi = np.atleast_1d(finite_array("probability", probability))
    if pi.ndim != 1 or not ((pi > 0) & (pi <= 1)).all():
        hint = "a row that could not be drawn has no label."
        raise ParameterError.expected("probability", probability, "numbers above 0, and 1 at most", hint=hint)
    if typical is not None and not 0 < typical <= 1:
        raise ParameterError.expected("typical", typical, "a probability above 0")
    limit = positive_number("most", most)
    unit = len(pi) / float((1 / pi).sum()) if typical is None and len(pi) else typical or 1.0
    weights = unit / pi
    return LabelWeights(np.minimum(weights, limit), int((weights > limit).sum()))
