"""The replay of one very long stream on Spark, cut at nodes of the tree, so that its points are those of one machine.

A piece of `arity**heights` rounds is one node. Its sum depends on nothing outside, so tasks climb pieces independently;
the driver runs the tree above, whose leaves are these sums, and sends every piece the points of the nodes above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._typing import Array
from treecal.engine import Above, Errors, Plan, climb_piece, new_treecal
from treecal.exceptions import FileError, ParameterError, TreeCalError
from treecal.forecasters import TreeCal
from treecal.geometry import ConvexSet, Distance, as_distance
from treecal.keyed._tables import arrow, arrow_schema, check_columns, forecast_columns, numbers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PIECE = "piece long, rounds long, total array<double>, errors array<double>, problem string"


def replay(outcomes: DataFrame, forecaster: ConvexSet | TreeCal, *, arity: int = 8) -> Replayed:
    """Forecast one long stream, as `tc.replay` does on one machine: the same points, bit for bit.

    Parameters
    ----------
    outcomes
        Rows of `seq` (the number of the round, from 0, without gaps) and `outcome` (lists of numbers; or classes, on
        a simplex), in any order and partitions. An invalid row raises an error that names it.
    forecaster
        A new `TreeCal`; or a set, for `TreeCal(space, arity=arity)`.
    arity
        Used when a set is given.
    """
    if isinstance(forecaster, ConvexSet):
        forecaster = TreeCal(forecaster, arity=arity)
    forecaster = new_treecal(forecaster)
    check_columns(arrow_schema(outcomes), forecaster, ("seq", "outcome"))
    return Replayed(outcomes, forecaster)


class Replayed:
    """A stream replayed on Spark. Made by `replay`.

    Attributes
    ----------
    rounds
        Number of outcomes.
    """

    def __init__(self, outcomes: DataFrame, forecaster: TreeCal) -> None:
        self._plan = plan = Plan(forecaster)
        number = f"(seq - pmod(seq, {plan.piece})) div {plan.piece} AS piece"
        self._pieces = outcomes.selectExpr("seq", "outcome", number).groupBy("piece")
        self._above: list[Array] = []  # the points of the nodes above each piece
        above = Above(plan)
        errors = Errors()
        self.rounds = 0
        # Lambdas, because Spark inspects the types of signatures and warns about unknown ones.
        climbed = self._pieces.applyInArrow(lambda key, table: _climb(key, table, plan), _PIECE).collect()
        for row in _in_order(climbed, plan):
            self._above.append(above.now[2] if not above.top else np.empty((0, plan.space.dim)))
            self.rounds += row.rounds
            errors.add_piece(np.reshape(row.errors, (3, -1)).tolist())
            for level in above.add(np.array(row.total), row.rounds):
                errors.add_node(level)
        for level in above.open():
            errors.add_node(level)
        self._totals = errors.totals()

    def per_node_error(self, distance: Distance | str = "l1", *, total: bool = False) -> float:
        """Return the per-node error in ℓ1, ℓ2 or ℓ2², per round unless `total`."""
        measure = as_distance(distance)
        if measure not in self._totals:
            raise ParameterError.expected("distance", distance, "l1, l2 or l2.squared")
        if not (self.rounds or total):
            raise ParameterError("no round was replayed, so there is no error per round.")
        return self._totals[measure] / (1 if total else self.rounds)

    def forecasts(self) -> DataFrame:
        """Return the forecast of each round: `seq`, the `points`, lowest height first, and their `mean`."""
        plan = self._plan
        above = self._above
        schema = "seq long, points array<double>, mean array<double>"
        return self._pieces.applyInArrow(lambda key, table: _forecasts(key, table, plan, above), schema)


def _climb(key: tuple[Any], table: pa.Table, plan: Plan) -> pa.Table:
    """Climb one piece; return its number, rounds, sum, and errors by distance and height; or its problem."""
    pa = arrow()
    number = key[0].as_py()
    total = None
    errors = None
    problem = None
    try:
        piece = climb_piece(plan, _rows(number, table, plan), number * plan.piece)
        total = piece.total.tolist()
        errors = np.ravel(piece.errors).tolist()
    except TreeCalError as error:
        problem = error.message
    real = pa.list_(pa.float64())
    columns = {"piece": pa.array([number], pa.int64()), "rounds": pa.array([len(table)], pa.int64())}
    columns |= {"total": pa.array([total], real), "errors": pa.array([errors], real)}
    return pa.table({**columns, "problem": pa.array([problem], pa.string())})


def _rows(number: int | None, table: pa.Table, plan: Plan) -> Any:
    """Return the outcomes of a piece, in order."""
    seq = table.column("seq").to_numpy()
    if number is None or number < 0:
        raise FileError(f"seq is {'null' if number is None else seq.min()}, expected the number of a round, from 0.")
    order = np.argsort(seq, kind="stable")
    first = number * plan.piece
    off = np.flatnonzero(seq[order] != np.arange(first, first + len(seq)))
    if len(off):
        expected = first + int(off[0])
        found = int(seq[order][off[0]])
        what = f"round {found} appears twice" if found < expected else f"round {expected} is missing"
        raise FileError(f"{what}: seq numbers the rounds from 0, each once.")
    return numbers(table.column("outcome").combine_chunks().take(arrow().array(order)), plan.space.dim)


def _in_order(rows: list[Any], plan: Plan) -> Iterator[Any]:
    """Yield the pieces in order; raise at the first that is invalid or missing."""
    rows = sorted(rows, key=lambda row: (row.piece is not None, row.piece))
    for index, row in enumerate(rows):
        if row.problem is not None:
            raise FileError(row.problem)
        if row.piece != index or (row.rounds < plan.piece and index < len(rows) - 1):
            missing = index * plan.piece if row.piece != index else index * plan.piece + row.rounds
            raise FileError(f"round {missing} is missing: seq numbers the rounds from 0, each once.")
        plan.tree.check(index * plan.piece + row.rounds)
        yield row


def _forecasts(key: tuple[Any], table: pa.Table, plan: Plan, above: list[Array]) -> pa.Table:
    """Return the forecasts of the rounds of a piece: its own points, and those above it."""
    number = key[0].as_py()
    rows = plan.dense(_rows(number, table, plan))
    n = len(rows)
    first = number * plan.piece
    inner = plan.levels(rows, n, first)[0]
    points = np.empty((n, plan.heights + len(above[number]), plan.space.dim))
    for height, level in enumerate(inner):
        points[:, height] = level.points[np.arange(n) // plan.tree.arity**height]
    points[:, plan.heights :] = above[number]
    seq = np.arange(first, first + n)
    lists, _, mean = forecast_columns(points, None, plan.tree.heights(seq))
    return arrow().table([seq, lists, mean], names=["seq", "points", "mean"])
