"""Losses: what each action costs under each class, for one decision or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal._validate import finite_array
from treecal.exceptions import LossError, ParameterError, TreeCalError
from treecal.geometry import Cdf, Simplex, Value, columns, paired, read_distribution

Action = str | int
_DROWNED = 1e-6  # of the largest cost: differences that rounding could decide


class LossTable(NamedTuple):
    """One decision: the names of its actions, what each costs under each class, and how much that differs at most.

    `scaled` are the costs beyond the least of their class, in units of `span`: from 0 to 1. Where `numbers`, classes
    are the cells between the thresholds of a `Cdf`, and forecasts and outcomes its points.
    """

    actions: tuple[Action, ...]
    costs: Array
    scaled: Array
    span: float
    numbers: bool = False

    @classmethod
    def of(cls, where: str, costs: Array, actions: Sequence[Any] | None, *, numbers: bool = False) -> LossTable:
        """Check a matrix of costs and the names of its rows."""
        count = len(costs)
        if count < 2:
            raise LossError(f"{where} has one action, expected two or more: with one there is nothing to decide.")
        names: tuple[Any, ...] = tuple(range(count) if actions is None else actions)
        if len(names) != count or len({*map(str, names)}) < count or not all(isinstance(n, str | int) for n in names):
            raise LossError(f"{where} has the actions {list(names)}, expected {count} different names.")
        with np.errstate(over="ignore"):
            above = costs - costs.min(axis=0)
        span = float(above.max())
        if span == np.inf:
            raise LossError(f"in {where} actions differ by more than a float holds, {np.finfo(float).max:.3g}.")
        if span <= _DROWNED * float(np.abs(costs).max()):
            raise LossError(
                f"in {where} actions differ by {span:.3g} at most, and cost up to {np.abs(costs).max():.3g}: "
                "it makes no difference which is taken.",
                hint="leave out what all actions cost alike." if span else None,
            )
        scaled = above / span
        scaled.setflags(write=False)
        return cls(names, costs, scaled, span, numbers)

    def chances(self, points: Array) -> Array:
        """Return the probabilities of the classes, `(..., k)`, under forecasts or outcomes."""
        return np.diff(points, axis=-1, prepend=0.0, append=1.0) if self.numbers else points

    def best(self, point: Array) -> int:
        """Return the action of least expected cost under a forecast, `(d,)`: of equal ones the first."""
        return self.cheapest(self.chances(point))

    def cheapest(self, chances: Array) -> int:
        """Return the action of least expected cost under probabilities of the classes: of equal ones the first."""
        return int(_added(self.costs * chances).argmin())

    def scaled_under(self, outcome: Array) -> Array:
        """Return what each action costs under an outcome, `(a,)`, in units of `span`."""
        return _added(self.scaled * self.chances(outcome))


class Losses(Value):
    """What each action costs under each class: what is lost or, with a minus sign, gained.

    Whoever believes a forecast `p` takes the action of least expected cost, the first of equal ones.

    Parameters
    ----------
    space
        The classes; or of numbers a `Cdf`, the cells between whose thresholds are then the classes.
    costs
        A matrix, `(actions, classes)`; rows by the name of their action, each a list or itself by class; or a frame of
        pandas, polars or Arrow with a column of text, the actions, and one of costs for each class. For several
        decisions that one forecast is for: these by the name of the decision. Of numbers, instead of rows, a function
        of the number for each action, by its name; or with `actions` one function of action and number: they are
        evaluated in the middles of the cells.
    actions
        The names of a matrix's rows; by default their numbers. Of several decisions a tuple for each.
    names
        The names of several decisions, where `costs` is a tuple of matrices.

    Examples
    --------
    An umbrella costs 1; rain without one costs 4:

    >>> import treecal as tc
    >>> sky = tc.Simplex(classes=["dry", "rain"])
    >>> losses = tc.Losses(sky, {"go": {"dry": 0, "rain": 4}, "umbrella": [1, 1]})
    >>> losses.tables[0].actions, losses.tables[0].costs.tolist(), losses.unit
    (('go', 'umbrella'), [[0.0, 4.0], [1.0, 1.0]], 3.0)
    >>> losses.advise([0.7, 0.3])
    'umbrella'
    >>> stock = tc.Losses(tc.Cdf(0, 500), lambda order, sold: max(order - sold, 4 * (sold - order)), actions=[100, 200])
    >>> stock.advise({"q10": 80, "q50": 120, "q90": 200})
    200
    >>> tc.Losses(sky, {"go": [0, 4]})
    Traceback (most recent call last):
    ...
    treecal.exceptions.LossError: losses has one action, expected two or more: with one there is nothing to decide.
    """

    _fields = ("space", "costs", "actions", "names")

    def __init__(
        self,
        space: Simplex | Cdf,
        costs: Any,
        *,
        actions: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(space, Simplex | Cdf):
            raise ParameterError.expected("space", space, "a Simplex or Cdf: losses are of classes, or of numbers")
        self.space = space
        several = names is not None or _is_several(costs)
        if several and isinstance(space, Cdf):
            raise LossError("of numbers there is one decision.", hint="a forecaster or corrector for each.")
        if not several:
            found = {"": _read("losses", space, costs, actions)}
        else:
            titles = list(costs) if names is None else list(names)
            if not titles or len(titles) != len(costs) or not all(isinstance(name, str) for name in titles):
                raise LossError(f"there are losses of {len(costs)} decisions named {titles}, expected a name for each.")
            parts = [costs[name] for name in titles] if names is None else costs
            rows = [None] * len(titles) if actions is None else list(actions)
            given = zip(titles, parts, rows, strict=True)
            found = {name: _read(f"losses[{name!r}]", space, part, row) for name, part, row in given}
        self.tables = tuple(found.values())
        self.costs: Any = tuple(table.costs for table in self.tables) if several else self.tables[0].costs
        self.actions: Any = tuple(table.actions for table in self.tables) if several else self.tables[0].actions
        self.names = tuple(found) if several else None
        self.unit = 1.0 if several else self.tables[0].span
        """What regrets are measured in: the loss's own unit; of several losses, the most that each can differ."""

    @classmethod
    def read(cls, space: Any, losses: Any) -> Losses:
        """Return losses on a set, whatever they are given as; anything else raises."""
        if not isinstance(losses, Losses):
            return cls(space, losses)
        if losses.space != space:
            raise ParameterError(f"the losses are of {losses.space!r}, expected {space!r}.")
        return losses

    def advise(self, forecast: Any) -> Any:
        """Return the action for a forecast, `(d,)`; of several decisions a dictionary of them.

        Examples
        --------
        >>> import treecal as tc
        >>> both = tc.Losses(tc.Simplex(2), {"coat": [[0, 4], [1, 1]], "trip": {"go": [0, 2], "stay": [2, 0]}})
        >>> both.advise([0.7, 0.3])
        {'coat': 1, 'trip': 'go'}
        """
        if isinstance(self.space, Cdf):
            return self.tables[0].actions[self.tables[0].best(read_distribution(self.space, forecast, 1, 1e-6))]
        point = finite_array("forecast", forecast, ndim=1)
        if point.shape != (self.space.dim,):
            raise ParameterError(f"the forecast has {len(point)} entries, expected {self.space.dim}.")
        return self.named([table.actions[table.best(point)] for table in self.tables])

    def named(self, each: Sequence[Any]) -> Any:
        """Return what there is for each decision by its name; of a single decision, as it is."""
        return each[0] if self.names is None else dict(zip(self.names, each, strict=True))


def _added(terms: Array) -> Array:
    """Return the sum of each row from left to right, which every processor rounds alike."""
    return np.asarray(np.add.accumulate(terms, axis=-1)[..., -1])


def _is_several(costs: Any) -> bool:
    """Return whether these are several decisions by name: what has a name is then no row, but a table."""
    if not isinstance(costs, Mapping) or not costs:
        return False
    first = next(iter(costs.values()))
    if isinstance(first, Mapping):
        return not all(np.ndim(value) == 0 and not isinstance(value, Mapping) for value in first.values())
    return columns(first) is not None or (isinstance(first, np.ndarray | list | tuple) and _deep(first) > 1)


def _deep(rows: Any) -> int:
    return rows.ndim if isinstance(rows, np.ndarray) else 2 if rows and isinstance(rows[0], list | tuple) else 1


def _read(where: str, space: Simplex | Cdf, costs: Any, actions: Sequence[Any] | None) -> LossTable:
    """Return one decision, or raise."""
    if isinstance(space, Cdf):
        return _of_numbers(where, space, costs, actions)
    if isinstance(costs, Mapping):
        actions = list(costs)
        costs = [_row(f"{where}[{name!r}]", space, row) for name, row in costs.items()]
    elif not isinstance(costs, np.ndarray | list | tuple) and (titles := columns(costs)) is not None:
        actions, costs = _framed(where, space, costs, titles)
    try:
        found = finite_array(where, costs, ndim=2)
    except TreeCalError as error:
        raise LossError(error.message, hint="a number for every action and class.") from None
    if found.shape[1] != space.dim:
        raise LossError(f"{where} has shape {found.shape}, expected (actions, {space.dim}).")
    return LossTable.of(where, found, actions)


def _of_numbers(where: str, space: Cdf, costs: Any, actions: Sequence[Any] | None) -> LossTable:
    """Return a decision about a number: what each action costs in the middle of each cell."""
    middles = ((space.knots[1:] + space.knots[:-1]) / 2).tolist()
    if callable(costs):
        if actions is None:
            raise LossError(f"{where} is a function of action and number.", hint="actions=[…] says of which actions.")
        actions = list(actions)
        costs = [[costs(action, y) for y in middles] for action in actions]
        actions = [action if isinstance(action, str | int) else f"{action:g}" for action in actions]
    elif isinstance(costs, Mapping):
        actions = list(costs)
        costs = [[row(y) for y in middles] if callable(row) else row for row in costs.values()]
    try:
        found = finite_array(where, costs, ndim=2)
    except TreeCalError as error:
        raise LossError(error.message, hint="a function for each action, whose values are numbers.") from None
    if found.shape[1] != space.dim + 1:
        raise LossError(
            f"{where} has shape {found.shape}, expected (actions, {space.dim + 1}), the cells of {space!r}."
        )
    return LossTable.of(where, found, actions, numbers=True)


def _row(where: str, space: Simplex, row: Any) -> Any:
    """Return the costs of one action, in the order of the classes."""
    if not isinstance(row, Mapping):
        if np.shape(row) != (space.dim,):
            raise LossError(f"{where} has shape {np.shape(row)}, expected a cost for each of {space.dim} classes.")
        return row
    classes = tuple(range(space.dim)) if space.classes is None else space.classes
    if set(row) != set(classes):
        raise LossError(f"{where} has costs for {sorted(map(str, row))}, expected {list(classes)}.")
    return [row[name] for name in classes]


def _framed(where: str, space: Simplex, table: Any, titles: list[Any]) -> tuple[list[Any] | None, Any]:
    """Return the names of the rows of a frame, if a column or the index has them, and its costs."""
    cells = {name: [getattr(cell, "as_py", lambda cell=cell: cell)() for cell in table[name]] for name in titles}
    words = [name for name, column in cells.items() if all(isinstance(cell, str) for cell in column)]
    rest = [name for name in titles if name not in words]
    if len(words) > 1 or len(rest) != space.dim:
        raise LossError(
            f"{where} has the columns {titles}, expected one of text, the actions, and one for each of "
            f"{space.dim} classes."
        )
    if space.classes is not None:
        order = paired([str(name) for name in rest], space.classes)
        if order is None or set(order) != set(space.classes):
            raise LossError(f"{where} has the columns {rest}, expected {list(space.classes)}.")
        rest = [rest[order.index(name)] for name in space.classes]
    index = [name for name in getattr(table, "index", ()) if isinstance(name, str)]
    actions = cells[words[0]] if words else index or None
    return actions, list(zip(*(cells[name] for name in rest), strict=True))
