"""The e-value written out: every start of every bet by itself, with nothing carried from round to round."""

from __future__ import annotations

import math

import numpy as np

from treecal.monitor._bets import BINS, FARTHEST, OFFSETS, RATES, TWELFTHS


def factors(P: np.ndarray, Y: np.ndarray, stakes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the factor of each bet in each round, `(rounds, bets)`, and the share of each bet."""
    dim = P.shape[1]
    columns, shares = [], []
    for n in TWELFTHS:
        q = P ** (n / 12)
        q /= q.sum(axis=1, keepdims=True)
        columns.append((Y * np.divide(q, P, out=np.zeros_like(P), where=P > 0)).sum(axis=1))
        shares.append(0.4 / len(TWELFTHS))
    watched = range(dim) if dim != 2 else [1]
    for k in watched:
        for size in [-x for x in reversed(OFFSETS)] + list(OFFSETS):
            tilt = np.ones(dim)
            tilt[k] = math.exp(size)
            columns.append((Y * tilt).sum(axis=1) / (P * tilt).sum(axis=1))
            shares.append(0.4 / len(watched) / (2 * len(OFFSETS)))
    for rate in RATES:
        tilt, column = np.ones(dim), []
        for p, y, stake in zip(P, Y, stakes, strict=True):
            q = p * tilt / (p @ tilt)
            column.append(0.5 * (1 + y @ tilt / (p @ tilt)))
            tilt = np.clip(tilt * (1 + stake * rate * (y - q)), 1 / FARTHEST, FARTHEST)
        columns.append(np.array(column))
        shares.append(0.1 / len(RATES))
    for rate in RATES:
        bins, tops, column = np.ones(BINS), np.ones(dim), []
        for p, y, stake in zip(P, Y, stakes, strict=True):
            top = int(p.argmax())
            b = min(int(p[top] * BINS), BINS - 1)
            tilt = bins[b] * tops[top]
            norm = 1 - p[top] + p[top] * tilt
            column.append(0.5 * (1 + (1 - y[top] + y[top] * tilt) / norm))
            step = 1 + stake * rate * (y[top] - p[top] * tilt / norm)
            bins[b] = np.clip(bins[b] * step, 1 / FARTHEST, FARTHEST)
            tops[top] = np.clip(tops[top] * step, 1 / FARTHEST, FARTHEST)
        columns.append(np.array(column))
        shares.append(0.1 / len(RATES))
    return 1 + stakes[:, None] * (np.array(columns).T - 1), np.array(shares)


def e_values(P: np.ndarray, Y: np.ndarray, stakes: np.ndarray | None = None) -> np.ndarray:
    """Return the e-value after each round: the average over bets and starts, those to come included.

    `stakes` is `λ/π`, of rows that are labelled with probability π: `1 + (λ/π)(q(y)/p(y) − 1)`.
    """
    f, shares = factors(P, Y, np.ones(len(P)) if stakes is None else stakes)
    found = []
    for t in range(1, len(P) + 1):
        products = np.array([np.prod(f[k - 1 : t], axis=0) for k in range(1, t + 1)])
        weights = np.array([1 / (k * (k + 1)) for k in range(1, t + 1)])
        found.append(float(shares @ (weights @ products)) + 1 / (t + 1))
    return np.array(found)
