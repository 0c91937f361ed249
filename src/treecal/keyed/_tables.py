"""The tables that travel: outcomes, state, forecasts and problems, as Arrow, and arrays to and from them.

Numbers are never turned into text, and state never depends on which other keys share its shard, so what comes back is
what was put in, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treecal._optional import require
from treecal._typing import Array, Integers
from treecal.engine._outcomes import Outcomes
from treecal.engine._state import TreeForecaster
from treecal.exceptions import FileError, SnapshotError, UnsupportedError
from treecal.forecasters import AdaptiveTreeCal
from treecal.geometry import ConvexSet, Simplex

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 2
"""Version of the state's layout."""

Mask = NDArray[np.bool_]


def arrow() -> Any:
    """Import pyarrow."""
    return require("pyarrow", extra="spark", what="a table of keyed streams")


def schemas() -> dict[str, pa.Schema]:
    """Return the schema of each table, by name; `shards` is one of others, packed."""
    pa = arrow()
    text, whole, numbers = pa.string(), pa.int64(), pa.list_(pa.float64())
    head = {"key": text, "rounds": whole, "first": whole, "seq": whole}
    return {
        "state": pa.schema({**head, "path": pa.binary(), "scale": pa.float64(), "format": pa.int32()}),
        "forecasts": pa.schema(
            {"key": text, "round": whole, "seq": whole, "points": numbers, "weights": numbers, "mean": numbers}
        ),
        "problems": pa.schema({"key": text, "seq": whole, "rows": whole, "kind": text, "detail": text}),
        "shards": pa.schema({"shard": pa.int32(), "blob": pa.binary()}),
    }


def as_one(**tables: pa.Table) -> pa.Table:
    """Return several of these tables as one, with a column `table` that says which: a job has one output."""
    pa = arrow()
    parts = [part.append_column("table", pa.repeat(name, len(part))) for name, part in tables.items()]
    return pa.concat_tables([one_schema(*tables).empty_table(), *parts], promote_options="default")


def one_schema(*names: str) -> pa.Schema:
    """Return the schema of that one table."""
    pa = arrow()
    fields = {field.name: field for name in names for field in schemas()[name]}
    return pa.schema([*fields.values(), ("table", pa.string())])


def check_outcomes(schema: pa.Schema, space: ConvexSet) -> None:
    """Raise unless a table of this schema can be read as outcomes of keyed streams: `key`, `seq` and `outcome`.

    Examples
    --------
    >>> import pyarrow as pa, treecal as tc
    >>> check_outcomes(pa.schema({"key": pa.string(), "seq": pa.int64()}), tc.Simplex(2))
    Traceback (most recent call last):
    ...
    treecal.exceptions.FileError: outcomes have no column 'outcome'; their columns are key, seq.
    ...
    """
    _check_columns(schema, space, ("key", "seq", "outcome"))


def check_numbered(schema: pa.Schema, space: ConvexSet) -> None:
    """Raise unless a table of this schema can be read as outcomes of one stream: `seq` and `outcome`."""
    _check_columns(schema, space, ("seq", "outcome"))


def _check_columns(schema: pa.Schema, space: ConvexSet, names: Sequence[str]) -> None:
    types = arrow().types
    simplex = isinstance(space, Simplex)
    vector = f"a list of {space.dim} numbers" + (" or a class" if simplex else "")
    expected = {name: {"key": "text", "seq": "a whole number", "outcome": vector}[name] for name in names}
    hint = "outcomes are rows of " + "; ".join(f"{name}, {what}" for name, what in expected.items()) + "."
    for name, what in expected.items():
        if schema.names.count(name) != 1:
            has = "two columns" if name in schema.names else "no column"
            raise FileError(
                f"outcomes have {has} {name!r}; their columns are {', '.join(schema.names) or 'none'}.", hint=hint
            )
        kind = schema.field(name).type
        good = {
            "key": types.is_string(kind) or types.is_large_string(kind),
            "seq": _is_whole(kind),
            "outcome": _is_vector(kind) or (simplex and _is_whole(kind)),
        }[name]
        if not good:
            raise FileError(f"the outcomes' column {name!r} is {kind}, expected {what}.", hint=hint)


def _is_whole(kind: Any) -> bool:
    return bool(arrow().types.is_signed_integer(kind) or (arrow().types.is_integer(kind) and kind.bit_width < 64))


def _is_vector(kind: Any) -> bool:
    types = arrow().types
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))


def check_state(state: pa.Table, forecaster: TreeForecaster) -> None:
    """Raise unless the table is a state that streams of this forecaster can resume from."""
    expected = schemas()["state"]
    if not state.schema.equals(expected):
        raise SnapshotError(f"this is not the state of a shard: expected the columns {', '.join(expected.names)}.")
    formats = state.column("format").unique().to_pylist()
    if formats not in ([], [FORMAT]):
        raise SnapshotError(
            f"the state has format {', '.join(map(str, formats))}, and this treecal reads {FORMAT}.",
            hint="upgrade treecal.",
        )
    heights = forecaster.tree.heights(state.column("rounds").to_numpy())
    sizes = np.diff(_offsets(state.column("path").combine_chunks()))
    if not np.array_equal(sizes, 8 * width(forecaster) * heights):
        raise SnapshotError(
            f"the state is not that of {forecaster!r}: its paths are of another size.",
            hint="resume with the forecaster that the state was made with.",
        )


def width(forecaster: TreeForecaster) -> int:
    """Return the numbers that a stream keeps of each height: its sum, and its cost and weight if it is weighted."""
    return forecaster.space.dim + 2 * isinstance(forecaster, AdaptiveTreeCal)


def pack(state: dict[str, Any], heights: Integers) -> list[pa.Array]:
    """Return the state of a `Bank` as two columns, `path` and `scale`.

    A path is little-endian float64, lowest height first and none above the stream's own: of each height the carried sum
    and, where heights are weighted, cost and weight. The scale is null where they are not.

    Parameters
    ----------
    state
        As `Bank.get_state` returns it.
    heights
        How many heights each stream has.
    """
    pa = arrow()
    columns = [state["sums"], *(state[name][..., None] for name in ("costs", "weights") if name in state)]
    rows = np.concatenate(columns, axis=2)
    w = rows.shape[2]
    ends = np.concatenate([[0], np.cumsum(heights * w * 8)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise UnsupportedError(f"{len(heights):,} keys are too many for one shard.", hint="more shards.")
    flat = np.empty((int(ends[-1]) // 8 // w, w), "<f8")
    at = ends[:-1] // 8 // w
    for height in range(int(heights.max(initial=0))):
        mine = heights > height
        flat[at[mine] + height] = rows[height, mine]
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(flat)]
    scale = pa.array(state["scale"]) if "scale" in state else pa.nulls(len(heights), pa.float64())
    return [pa.Array.from_buffers(pa.binary(), len(heights), buffers), scale]


def unpack(state: pa.Table, forecaster: TreeForecaster) -> dict[str, Any]:
    """Return the state of a `Bank` that `pack` made columns of."""
    rounds, packed = state.column("rounds").to_numpy(), state.column("path").combine_chunks()
    heights, d, w = forecaster.tree.heights(rounds), forecaster.space.dim, width(forecaster)
    offsets, data = _offsets(packed), packed.buffers()[2]
    flat = np.frombuffer(data, "<f8", count=int(offsets[-1]) // 8) if data else np.empty(0)
    rows = np.zeros((int(heights.max(initial=forecaster.tree.heights(0))), len(heights), w))
    at = offsets[:-1] // 8 // w
    for height in range(len(rows)):
        mine = heights > height
        rows[height, mine] = flat.reshape(-1, w)[at[mine] + height]
    tree = {"rounds": rounds, "sums": rows[..., :d]}
    if w == d:
        return tree
    return tree | {"costs": rows[..., d], "weights": rows[..., d + 1], "scale": state.column("scale").to_numpy()}


def numbers(values: pa.Array, dim: int) -> Outcomes:
    """Return a column of outcomes as a bank takes them; what is null or of another length is −1 or NaN."""
    pa = arrow()
    if pa.types.is_integer(values.type):
        return np.asarray(values.cast(pa.int64()).fill_null(-1).to_numpy())
    import pyarrow.compute as pc

    right = pc.list_value_length(values).fill_null(-1).to_numpy() == dim
    flat = pc.list_flatten(values.filter(pa.array(right))).cast(pa.float64())
    vectors: Array = np.full((len(values), dim), np.nan)
    vectors[right] = flat.to_numpy(zero_copy_only=False).reshape(-1, dim)  # a null entry is NaN
    return vectors


def forecast_columns(points: Array, weights: Array | None, heights: Integers) -> list[pa.Array]:
    """Return forecasts as three columns of lists: points, one after the other; their weights; and their mean.

    Parameters
    ----------
    points
        `(n, heights, d)`, as `Forecasts.points`.
    weights
        `(n, heights)`; None for equal ones: then points are added up from the lowest, and divided once.
    heights
        How many heights count in each.
    """
    n, _, d = points.shape
    mine, mean = np.arange(points.shape[1]) < heights[:, None], np.zeros((n, d))
    for height in range(points.shape[1]):
        at = mine[:, height]
        mean[at] += points[at, height] if weights is None else weights[at, height, None] * points[at, height]
    if weights is None:
        mean /= heights[:, None]
        weights = np.broadcast_to(1 / heights[:, None], mine.shape)
    return [_lists(points[mine], heights * d), _lists(weights[mine], heights), _lists(mean, np.full(n, d))]


def _lists(values: Array, sizes: Integers) -> pa.Array:
    pa = arrow()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.ascontiguousarray(values).ravel()))


def _offsets(packed: pa.Array) -> Integers:
    raw = np.frombuffer(packed.buffers()[1], np.int32) if len(packed) else np.zeros(1, np.int32)
    return raw[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)
