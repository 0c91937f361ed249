"""Multicalibrator: forecasts without bias in every one of many overlapping groups, on any sequence."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import numpy as np

from treecal._states import Entries, check_array, check_names, check_number
from treecal._typing import Array, Changes, Saved
from treecal._validate import whole_number
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Group
from treecal.correctors._names import read_name, saved_names
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Simplex

STEP = 0.2
"""The first step of each coefficient; after errors with sum of squares `V` it is `STEP/√(1 + V)`."""
FLOOR = 0.03
"""The most that a floor is of the model's probability; after `t` rounds it is at most `1/√(1 + t)`."""
TESTS = 3
"""Of each class in each group: the error itself, its product with the announced `p_k`, and with the model's `b_k`."""
_FLAT = 1e-12  # of the coefficients: a curvature that counts as none


class _Tested:
    """What a group's tests have found, in arrays that are replaced and never changed."""

    def __init__(self, weight: float, sums: Array, squares: Array, lifted: Array) -> None:
        self.weight = weight  # of its rounds
        self.sums = sums  # (TESTS, dim): of the errors y'_k − p_k, times 1, p_k, b_k
        self.squares = squares  # (TESTS, dim): of what was added
        self.lifted = lifted  # (dim,): the sum of y − y', what floors took from the outcomes
        self.steps = STEP / np.sqrt(1.0 + squares)
        self.coefficients = sums * self.steps


class Multicalibrator(Corrector):
    """Groups that overlap: `predict(b, group=("JFK", "winter"))` corrects a round for all its groups at once.

    In each group, and in that of all rounds, the errors `y − p` of the announced forecasts have a small sum, and so
    have their products with `p` and with the model's `b`: no group is over- or underestimated, nor high forecasts more
    than low ones. Groups are met as they come.

    **Algorithm.** Each class `k` of each group `g` has three coefficients, of the tests `1`, `p_k` and `b_k`. The
    tests of a round add up to `h_k(p) = Σ_g (α_gk + β_gk·p_k + γ_gk·b_k)` over its groups, and the forecast is a point
    where no outcome is favoured: `⟨h(p), y − p⟩ <= 0` for every `y`. After the outcome, with `S` the sum of a test's
    errors and `V` that of their squares, its coefficient is `S·STEP/√(1 + V)`. In the group of all, `β` starts at −1
    and `γ` at 1, so that `h = b − p` and the model's forecasts stay as they are until outcomes give a reason to change
    them.

    Since `h_k` depends on no other class, `h` is the gradient of a sum of parabolas, and a forecast as above is one
    that no small change improves. It always exists and is found by sorting: one point, where tests that mix the classes
    would need a distribution over the iterates of an inner loop (Farina and Perdomo).

    **Floors.** A shift alone would take probabilities to 0, which the log score punishes without limit. So no class is
    given less than its floor, `ε·b_k` with `ε = min(0.03, 1/√(1 + W))`, `W` the weight of the rounds before: the log
    score of a round is at most the model's plus `ln(1/ε)`. The forecast is as above among the points with `p >= ε·b`:
    there is a level `λ` with `h_k = λ` where `p_k` is more than its floor, and `h_k <= λ` in the set `A` of the classes
    that are held there. In place of `y` is learned `y' = y + Σ_A ε·b_k·(e_k − y)`, the outcome with the floors' share
    taken out. Then `y' − p` sums to 0, in `A` it is `(1 − |a|)·y_k >= 0` with `|a| = Σ_A ε·b_k`, and so
    `⟨h(p), y' − p⟩ = Σ_A (h_k − λ)·(1 − |a|)·y_k <= 0`. What is not learned is `y − y'`, of size `2|a| <= 2ε` at most;
    and it is 0 in a round in which no class is held.

    **Guarantee**, for any forecasts, outcomes and groups. Let `x` be all coefficients, `x_1` their start, `η` the
    steps, `g_t` the learned errors of round `t`, of `y' − p`, and `F_t(S) = max_x ⟨S, x⟩ − Σ_i (x_i − x_1i)²/(2η_ti)`,
    whose gradient at the past sums is `x_t`. `F_t` falls as steps do, and
    `F_t(S + g) <= F_t(S) + ⟨g, x_t⟩ + Σ_i η_ti·g_i²/2`. Because `⟨g_t, x_t⟩ = ⟨h(p_t), y'_t − p_t⟩ <= 0`, after all
    rounds `F(S) <= X = Σ_t Σ_i η_ti·g_ti²/2`: for every `u`

        `⟨S, u⟩ <= X + Σ_i (u_i − x_1i)²/(2η_i)`.

    - With `u` in the directions of one group's errors, and the best length: `Σ_k |Σ_t (y'_k − p_k)|`, over the group's
      rounds, is at most `√(2·(X + Z)·Σ_k 1/η_gk)`, where `Z = Σ_k (1/η_βk + 1/η_γk)/2` of the group of all is the cost
      of leaving the start. The errors `y − p` have at most `Σ_k |Σ_t (y_k − y'_k)|` more, which is kept. The sum of
      both is `bound(group)`. In weights of 1 it is `O(√T)` (`multicalibration_bound`): on one coordinate `X` is at most
      `STEP·√V`, and `Σ_t 2·ε_t <= 4√T`.
    - With `u` the start, `Σ⟨b − p, y' − p⟩ <= X`. Since `⟨b − p, y − y'⟩ = |a|·(b − p)_y − Σ_A ε·b_k·(b_k − p_k)`,
      where `b_k >= p_k` in `A`, the Brier score is at most that of the model plus `2X + 2·Σ|a|`, also `O(√T)`; and with
      `b − p` in one group, so it is there.

    Any weights keep the guarantee: weighted errors are added up, and `X` is counted as it comes. Calibration in the
    usual sense, an error of each distinct forecast in each group, cannot be had at this rate.

    A round costs `O(dim·log dim + groups·dim)`, `groups` those of the round. Memory is `7·dim` numbers for each group
    met.

    Parameters
    ----------
    space
        A simplex.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> rng, f = np.random.default_rng(0), tc.Multicalibrator(tc.Simplex(2))
    >>> for _ in range(4000):
    ...     airport, season = str(rng.choice(["JFK", "LGA"])), str(rng.choice(["summer", "winter"]))
    ...     late = 0.2 + 0.2 * (airport == "JFK") + 0.3 * (season == "winter")
    ...     x = f.predict([0.5, 0.5], group=(airport, season))  # a model that knows nothing
    ...     f.update([0, 1] if rng.random() < late else [1, 0])
    >>> f.predict([0.5, 0.5], group=("JFK", "winter")).mean.round(1)
    array([0.3, 0.7])
    >>> f.error("JFK") < 0.01 and f.error("JFK") < f.bound("JFK")
    True

    References
    ----------
    Farina and Perdomo, "An Efficient Black-Box Reduction from Online Learning to Multicalibration", 2026.
    Vovk, Takemura and Shafer, "Defensive Forecasting", 2005.
    Duchi, Hazan and Singer, "Adaptive Subgradient Methods", 2011.
    """

    name = "multicalibrate"

    def __init__(self, space: ConvexSet, *, scores: Scored | None = "binned", tolerance: float = 1e-6) -> None:
        if not isinstance(space, Simplex):
            raise ParameterError.expected("space", space, "a Simplex, because tests are of one class each")
        super().__init__(space, scores=scores, tolerance=tolerance)
        self._tested: Entries[Hashable, _Tested] = Entries()
        self._spent = 0.0  # X of the guarantee

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the one there is."""
        if isinstance(space, Simplex):
            yield cls(space)

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The groups met, in that order; None, that of all rounds, is the first."""
        with self._lock:
            return tuple(self._tested.read())

    def error(self, group: Group = None) -> float:
        """Return `Σ_k |Σ (y_k − p_k)|` over a group's rounds, per round; by default over all.

        Parameters
        ----------
        group
            The name of one group.
        """
        with self._lock:
            own = self._one(group)
            return float(np.abs(own.sums[0] + own.lifted).sum()) / own.weight

    def bound(self, group: Group = None) -> float:
        """Return what `error(group)` is guaranteed not to exceed, whatever the outcomes were.

        Parameters
        ----------
        group
            The name of one group.
        """
        with self._lock:
            own = self._one(group)
            leaving = float((1 / self._one(None).steps[1:]).sum()) / 2
            learned = math.sqrt(2 * (self._spent + leaving) * float((1 / own.steps[0]).sum()))
            return (learned + float(np.abs(own.lifted).sum())) / own.weight

    def _check_given(self, group: Group, weight: float) -> None:
        read_name(group)

    def _one(self, group: Group) -> _Tested:
        own = self._tested.read().get(read_name(group))
        if own is None:
            raise ParameterError(f"the group {group!r} was not met yet.", hint="groups lists those that were.")
        return own

    def _announce(self, forecast: Array, *, group: Group = None) -> Forecast:
        return self._point(self._balanced(forecast, group)[0])

    def _balanced(self, forecast: Array, group: Group) -> tuple[Array, Array]:
        """Return the forecast to announce, and the floors of the classes that are held there, 0 for the others."""
        height = forecast.copy()  # h = height − curve·p, at the start b − p
        curve = np.ones(len(forecast))
        met = self._tested.read()
        for name in _names(group):
            if (own := met.get(name)) is not None:
                constant, slope, model = own.coefficients
                height += constant + model * forecast
                curve -= slope
        part = min(FLOOR, 1 / math.sqrt(1 + met[None].weight)) if met else FLOOR
        floors = part * forecast
        above = balance(height - curve * floors, (1 - part) * curve)
        return floors + (1 - part) * above, np.where(above > 0, 0.0, floors)

    def _after(self, forecast: Array, outcome: Array, *, group: Group = None, weight: float = 1.0) -> Changes:
        p, held = self._balanced(forecast, group)
        lifted = weight * (float(held.sum()) * outcome - held)  # y − y'
        added = (weight * (outcome - p) - lifted) * np.stack([np.ones(len(p)), p, forecast])
        squares = added**2
        met = self._tested.read()
        spent = self._spent
        newest: dict[Hashable, _Tested] = {}
        for name in _names(group):
            own = met.get(name) or _Tested(0.0, np.zeros_like(added), np.zeros_like(added), np.zeros_like(lifted))
            spent += float((own.steps * squares).sum()) / 2
            sums = own.sums + added
            newest[name] = _Tested(own.weight + weight, sums, own.squares + squares, own.lifted + lifted)
        return {"_tested": self._tested.after(newest), "_spent": spent}

    def _own_state(self) -> Saved:
        met = self._tested.read()
        dim = self.space.dim
        return {
            "names": list(met),
            "weight": np.array([own.weight for own in met.values()]),
            "sums": np.array([own.sums for own in met.values()]).reshape(-1, TESTS, dim),
            "squares": np.array([own.squares for own in met.values()]).reshape(-1, TESTS, dim),
            "lifted": np.array([own.lifted for own in met.values()]).reshape(-1, dim),
            "spent": self._spent,
        }

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        check_names("the groups", state, ("names", "weight", "sums", "squares", "lifted", "spent"))
        names = saved_names(state["names"])
        weight = state["weight"]
        check_array("weight", weight, (len(names),))
        for name in ("sums", "squares"):
            check_array(name, state[name], (len(names), TESTS, self.space.dim))
        check_array("lifted", state["lifted"], (len(names), self.space.dim))
        if names[:1] not in ([], [None]):
            raise SnapshotError("the groups' first is not that of all rounds.")
        if (weight <= 0).any() or (state["squares"] < 0).any():
            raise SnapshotError("the groups' weights are not more than 0, or their squares are less.")
        check_number("spent", state["spent"], least=0.0, most=float(np.finfo(np.float64).max))
        arrays = (state[name].copy() for name in ("sums", "squares", "lifted"))
        rows = zip(names, weight.tolist(), *arrays, strict=True)
        met = {name: _Tested(*own) for name, *own in rows}
        return {"_tested": Entries(met), "_spent": float(state["spent"])}


def _names(group: Group) -> list[Hashable]:
    """Return the groups of a round, each once, that of all first. Text is one name, a tuple holds several."""
    found = read_name(group)
    return list(dict.fromkeys((None, *(found if isinstance(found, tuple) else (found,)))))


def balance(height: Array, curve: Array) -> Array:
    """Return a point `p` of the simplex with `⟨h, y − p⟩ <= 0` for every `y` of it, `h = height − curve·p`.

    There is a level `λ` with `h_k = λ` where `p_k > 0`, and `h_k <= λ` where `p_k = 0`. If all curves are positive it
    is where `Σ_k max(0, (height_k − λ)/curve_k) = 1`. Classes whose curve is not are worth more the more of them there
    is, so at most one is needed: the one that is worth most on its own, with `p_k = 1`, if no other class is worth more
    than that; otherwise, if any is above `λ`, the highest, as much of it as lifts the level of the rest to its own.
    """
    down = curve > _FLAT * float(np.abs(height).max() + np.abs(curve).max())
    if down.all():
        return _below(height, curve, 1.0)
    p = np.zeros(len(height))
    up = np.where(down, -np.inf, height)
    heights = height[down]
    curves = curve[down]
    best = int(up.argmax())
    if not len(heights) or up[best] > _level(heights, curves, 1.0):
        alone = np.where(down, -np.inf, height - np.minimum(curve, 0.0))
        top = int(alone.argmax())
        if heights.max(initial=-np.inf) <= alone[top]:
            p[top] = 1.0
            return p
        p[best] = _share(up[best], min(curve[best], 0.0), heights, curves)
    p[down] = _below(heights, curves, 1.0 - p[best])
    return p


def _below(heights: Array, curves: Array, total: float) -> Array:
    """Return `max(0, (height_k − λ)/curve_k)`, `λ` such that they add up to the total."""
    p = np.maximum(heights - _level(heights, curves, total), 0.0) / curves
    return np.asarray(p * (total / p.sum())) if total else p


def _level(heights: Array, curves: Array, total: float) -> float:
    """Return `λ` with `Σ max(0, (height_k − λ)/curve_k) = total`, for positive curves."""
    order = (-heights).argsort(kind="stable")
    heights = heights[order]
    slopes = 1.0 / curves[order]
    levels = ((heights * slopes).cumsum() - total) / slopes.cumsum()
    return float(levels[max(np.count_nonzero(heights > levels) - 1, 0)])


def _share(height: float, curve: float, heights: Array, curves: Array) -> float:
    """Return how much of a class with a negative curve has the level of the rest: it is above at 0 and below at 1."""
    low = 0.0
    high = 1.0
    while low < (middle := (low + high) / 2) < high:
        above = height - curve * middle > _level(heights, curves, 1.0 - middle)
        low, high = (middle, high) if above else (low, middle)
    return low


def multicalibration_bound(rounds: int, *, classes: int, groups: int, each: int, size: int | None = None) -> float:
    """Return the most that a `Multicalibrator`'s `error` of a group can be, on any sequence with weights of 1.

    With `n_g` rounds in group `g`, that of all included, `X <= STEP·(2 + √2)·Σ_g √(classes·n_g)`, because over the
    classes the squared errors add up to 2 a round at most, and with `p` or `b` to 1. By Cauchy and Schwarz `Σ_g √n_g`
    is at most the root of `groups + 1` times all memberships, `(each + 1)·rounds`. The floors of `n` rounds are at most
    `Σ_{t<=n} 2·min(0.03, 1/√t)`. The rest is as for `Multicalibrator`, with
    `Σ_k √(1 + V_k) <= √(classes·(classes + Σ_k V_k))`.

    Parameters
    ----------
    rounds
        Rounds played.
    classes
        Number of classes.
    groups
        Number of groups met.
    each
        Most groups of one round.
    size
        Rounds of the group; by default all.

    Examples
    --------
    >>> round(multicalibration_bound(336_000, classes=5, groups=25, each=3), 3)
    0.057
    """
    rounds = whole_number("rounds", rounds, least=1)
    classes = whole_number("classes", classes, least=1)
    groups = whole_number("groups", groups, least=0)
    each = whole_number("each", each, least=0)
    size = rounds if size is None else whole_number("size", size, least=1)
    spent = STEP * (2 + math.sqrt(2)) * math.sqrt(classes * (groups + 1) * (each + 1) * rounds)
    leaving = math.sqrt(classes * (classes + rounds)) / STEP
    learned = math.sqrt(2 * (spent + leaving) * math.sqrt(classes * (classes + 2 * size)) / STEP)
    short = min(size, int(FLOOR**-2))  # rounds in which the floor is 3 %; from there on the sum is below an integral
    lifted = 2 * FLOOR * short + 4 * (math.sqrt(size) - math.sqrt(short))
    return (learned + lifted) / size
