"""A forecast: a finite distribution over points of the set."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import finite_array
from treecal.exceptions import ForecastError, TreeCalError, UnsupportedError
from treecal.geometry import TOLERANCE, Cdf, ConvexSet, Distribution
from treecal.measures import Losses
from treecal.tree import path_nodes

_new = object.__new__


class Forecast:
    """What a forecaster announces in one round: points, and the weight of each. Immutable.

    `points` and `weights` are read-only, and NumPy lets nobody change that. Other libraries may write even to memory
    that is read-only (`torch.from_numpy` warns, and does): copy the points first, which may be those the forecaster
    goes on with. Weights are the forecast's own.

    Parameters
    ----------
    points
        The points, `(n, d)`.
    weights
        Their weights, `(n,)`: non-negative, with sum 1. Uniform when left out.
    nodes
        Optional `(n, 2)` integers, one pair for each point: the node of the tree it stands on, `(height, index)`.
        They distinguish equal points in the per-node error, the paper's labelled calibration error.
    space
        The set the points must lie in; when given, they are checked against it.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> x = Forecast([[0.5, 0.5], [1.0, 0.0]], space=Simplex(2))
    >>> x.mean
    array([0.75, 0.25])
    >>> x.sample(np.random.default_rng(0))
    array([1., 0.])
    >>> Forecast([[0.5, 0.5]], weights=[0.9])
    Traceback (most recent call last):
    ...
    treecal.exceptions.ForecastError: weights sum to 0.9, expected 1 within 1e-09.
    """

    __slots__ = ("_nodes", "_points", "_space", "_weights")
    _nodes: Integers | None

    def __init__(
        self,
        points: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        nodes: Any = None,
        space: ConvexSet | None = None,
    ) -> None:
        try:
            p = finite_array("points", points, ndim=2)
            if not p.size:
                raise ForecastError(f"points has shape {p.shape}, expected one point or more.")
            w = uniform(len(p)) if weights is None else finite_array("weights", weights, ndim=1)
        except TreeCalError as error:
            raise ForecastError(error.message, hint=error.hint) from None
        if w.shape != p.shape[:1]:
            raise ForecastError(f"there are {len(p)} points and {w.shape[0]} weights, expected one each.")
        if w.min() < 0:
            raise ForecastError(f"weight {int(w.argmin())} is {w.min():g}, expected 0 or more.")
        if abs(w.sum() - 1) > TOLERANCE:
            raise ForecastError(f"weights sum to {w.sum():.10g}, expected 1 within {TOLERANCE:g}.")
        if space is not None:
            self._check_inside(space, p)
        if nodes is not None:
            given = np.asarray(nodes)
            if given.dtype.kind not in "iu" or given.shape != (len(p), 2):
                raise ForecastError(
                    f"nodes are {given.dtype} of shape {given.shape}, expected integers of shape ({len(p)}, 2)."
                )
            nodes = given.astype(np.int64)
            nodes.setflags(write=False)
        self._points = p
        self._weights = w
        self._nodes = nodes
        self._space = space

    @staticmethod
    def _check_inside(space: ConvexSet, points: Array) -> None:
        if points.shape[1] != space.dim:
            raise ForecastError(f"points have {points.shape[1]} coordinates, expected {space.dim} for {space!r}.")
        with np.errstate(over="ignore"):  # of numbers so large that their sum is infinite
            inside = space.contains(points)
            if not inside.all():
                at = int(np.argmin(inside))
                raise ForecastError(f"point {at} lies outside {space!r}: {space.complaint(points[at])}.")

    @staticmethod
    def trusted(points: Array, weights: Array, nodes: Integers | None, space: ConvexSet | None) -> Forecast:
        """Make a forecast of valid arrays, without checks or copies: they become read-only."""
        self = _new(Forecast)
        points.setflags(False)  # type: ignore[call-arg] # by position, in a third of the time
        weights.setflags(False)  # type: ignore[call-arg]
        if nodes is not None:
            nodes.setflags(write=False)
        self._points = points
        self._weights = weights
        self._nodes = nodes
        self._space = space
        return self

    @property
    def points(self) -> Array:
        """The points, `(n, d)`, read-only."""
        if self._points.base is None:
            self._points = self._points.view()  # which NumPy does not let anyone make writable
        return self._points

    @property
    def weights(self) -> Array:
        """The weights, `(n,)`, read-only."""
        if self._weights.base is not None:  # as of `uniform`, which all share
            self._weights = self._weights.copy()
            self._weights.setflags(write=False)
        return self._weights

    @property
    def nodes(self) -> Integers | None:
        """The node of each point, `(n, 2)` as (height, index), read-only; None when there is no tree."""
        return self._nodes

    @property
    def space(self) -> ConvexSet | None:
        """The set the points are known to lie in, if any."""
        return self._space

    @property
    def mean(self) -> Array:
        """The mean point, `(d,)`."""
        if len(self._points) == 1:
            return np.asarray(self._weights[0] * self._points[0])
        # Added up in order, not by BLAS, whose order another processor does not keep.
        return np.asarray(np.add.accumulate(self._weights[:, None] * self._points, axis=0)[-1])

    @property
    def distribution(self) -> Distribution:
        """What is forecast of a number, on a `Cdf`: the mean of the points' distribution functions, to be read."""
        if not isinstance(self._space, Cdf):
            why = "its outcomes are no numbers with a distribution function"
            raise UnsupportedError.by(self._space, "distribution", why, hint="tc.Cdf(low, high) is the set of those.")
        return self._space.distribution(self.mean)

    def cdf(self, z: ArrayLike) -> Any:
        """Return the probability of numbers up to `z`, on a `Cdf`."""
        return self.distribution.cdf(z)

    def quantile(self, level: ArrayLike) -> Any:
        """Return the quantile of a level, on a `Cdf`: the median for 0.5."""
        return self.distribution.quantile(level)

    def interval(self, coverage: float) -> tuple[float, float]:
        """Return the central interval of this probability, on a `Cdf`."""
        return self.distribution.interval(coverage)

    def crps(self, outcome: float) -> float:
        """Return the continuous ranked probability score of an outcome, on a `Cdf`."""
        return float(self.distribution.crps(outcome))

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw one point: the pure forecast."""
        return np.asarray(self._points[rng.choice(len(self), p=self._weights)]).copy()

    def merged(self) -> Forecast:
        """Return the same distribution with equal points joined and nodes dropped, in order of first appearance."""
        first: dict[bytes, int] = {}
        home = np.array([first.setdefault(row.tobytes(), i) for i, row in enumerate(self.points + 0.0)])
        keep = np.array(list(first.values()))
        weights = np.bincount(home, self.weights, len(home))[keep]
        return Forecast(self.points[keep], weights=weights, space=self.space)

    def __len__(self) -> int:
        return len(self._points)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Forecast):
            return NotImplemented
        ours, theirs = ((x._points, x._weights, () if x.nodes is None else x.nodes) for x in (self, other))
        return all(map(np.array_equal, ours, theirs))

    __hash__ = None  # type: ignore[assignment] # compared by value, and made of arrays

    def __reduce__(self) -> tuple[Any, ...]:
        return Forecast.trusted, (self._points, self._weights, self.nodes, self.space)

    def __repr__(self) -> str:
        n, d = self._points.shape
        return f"Forecast({n} point{'s' * (n != 1)} in R^{d}, mean {np.array2string(self.mean, precision=4)})"


class TreeForecast(Forecast):
    """A forecast whose points stand on one path of the tree, from leaf to root. Made unchecked, by forecasters.

    Parameters
    ----------
    points
        The points, `(n, d)`: that of height 0 first.
    weights
        Their weights, `(n,)`, read-only.
    rounds
        Rounds before this one: the node of height `j` is the one of index `rounds // arity**j`.
    arity
        Children of each node.
    space
        The set the points lie in.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> x = TreeForecast(np.array([[0.0, 1.0], [1.0, 0.0]]), uniform(2), 3, 2, Simplex(2))
    >>> x.nodes.tolist()
    [[0, 3], [1, 1]]
    """

    __slots__ = ("_arity", "_rounds")

    def __init__(self, points: Array, weights: Array, rounds: int, arity: int, space: ConvexSet) -> None:
        points.setflags(False)  # type: ignore[call-arg] # by position, in a third of the time
        self._points = points
        self._weights = weights
        self._nodes = None
        self._space = space
        self._rounds = rounds
        self._arity = arity

    @property
    def rounds(self) -> int:
        """Rounds before this one."""
        return self._rounds

    @property
    def arity(self) -> int:
        """Children of each node."""
        return self._arity

    @property
    def nodes(self) -> Integers:
        """The node of each point, `(n, 2)` as (height, index), read-only."""
        if self._nodes is None:  # computed when first read: most never are
            self._nodes = path_nodes(self._rounds, self._arity, len(self))
        return self._nodes

    def __reduce__(self) -> tuple[Any, ...]:
        return _tree_forecast, (self._points, self._weights, self.rounds, self.arity, self.space)


def _tree_forecast(points: Array, weights: Array, rounds: int, arity: int, space: ConvexSet) -> TreeForecast:
    """Make a forecast of arrays that were copied, and so can be written to."""
    weights.setflags(write=False)
    return TreeForecast(points, weights, rounds, arity, space)


class DecisionForecast(Forecast):
    """A forecast with the advice that follows from it: the action of least expected cost at each of its points.

    Parameters
    ----------
    forecast
        The forecast.
    losses
        What each action costs under each class.

    Examples
    --------
    >>> import treecal as tc
    >>> losses = tc.Losses(tc.Simplex(2), {"go": [0, 4], "umbrella": [1, 1]})
    >>> x = DecisionForecast(Forecast([[0.9, 0.1], [0.7, 0.3]], weights=[0.4, 0.6]), losses)
    >>> x.actions, x.action
    ({'go': 0.4, 'umbrella': 0.6}, 'umbrella')
    """

    __slots__ = ("_advised", "_losses")

    def __init__(self, forecast: Forecast, losses: Losses) -> None:
        self._points = forecast._points
        self._weights = forecast._weights
        self._nodes = forecast.nodes
        self._space = forecast.space
        self._losses = losses
        self._advised: list[Array] | None = None

    @property
    def losses(self) -> Losses:
        """What each action costs under each class."""
        return self._losses

    @property
    def shares(self) -> list[Array]:
        """For each decision the weight of each action, `(a,)`."""
        if self._advised is None:
            self._advised = advised(self, self._losses)
        return self._advised

    @property
    def actions(self) -> Any:
        """The actions that are advised, and the weight of each; of several decisions a dictionary of these."""
        tables = zip(self._losses.tables, self.shares, strict=True)
        return self._losses.named(
            [
                {name: share for name, share in zip(table.actions, shares.tolist(), strict=True) if share}
                for table, shares in tables
            ]
        )

    @property
    def action(self) -> Any:
        """The action of the greatest weight, the first of equal ones; of several decisions a dictionary of these.

        Where several have weight, the guarantee is that of drawing one by these weights: see `draw`.
        """
        tables = zip(self._losses.tables, self.shares, strict=True)
        return self._losses.named([table.actions[int(shares.argmax())] for table, shares in tables])

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw an action by the weights; of several decisions, those that one point of the forecast calls for."""
        return self._losses.advise(self.sample(rng))

    def __reduce__(self) -> tuple[Any, ...]:
        plain = Forecast.trusted(self._points, self._weights, self.nodes, self.space)
        return DecisionForecast, (plain, self._losses)


def advised(x: Forecast, losses: Losses) -> list[Array]:
    """Return for each decision the weight of each action under a forecast, `(a,)`.

    Examples
    --------
    >>> import treecal as tc
    >>> advised(Forecast([[0.9, 0.1]]), tc.Losses(tc.Simplex(2), [[0, 4], [1, 1]]))
    [array([1., 0.])]
    """
    found = [np.zeros(len(table.actions)) for table in losses.tables]
    for point, weight in zip(x._points, x._weights.tolist(), strict=True):
        for shares, table in zip(found, losses.tables, strict=True):
            shares[table.best(point)] += weight
    return found


@lru_cache(maxsize=64)
def uniform(count: int) -> Array:
    """Return `count` equal weights, read-only: one array for all who ask, not to be handed out.

    Examples
    --------
    >>> uniform(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    weights = np.full(count, 1 / count)
    weights.setflags(write=False)
    return weights.view()  # which NumPy does not let anyone make writable
