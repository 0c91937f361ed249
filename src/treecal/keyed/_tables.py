"""The tables that engines exchange, in Arrow: outcomes, state, forecasts and problems; and their conversion to arrays.

Numbers are never turned into text, and state does not depend on which other keys share its shard, so everything comes
back bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from treecal._optional import require
from treecal._states import check_rounds
from treecal._typing import Array, Integers
from treecal.correctors import Corrector
from treecal.engine import Bank
from treecal.engine._outcomes import Outcomes
from treecal.engine._state import TreeForecaster
from treecal.exceptions import FileError, ParameterError, SnapshotError, UnsupportedError
from treecal.forecasters import AdaptiveTreeCal
from treecal.geometry import ConvexSet, Simplex
from treecal.state import describe

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 2
"""Version of the state's layout."""

SAID = ("forecasts", "announced", "problems")
"""What an epoch says, besides the state."""

_OWNER, _SHOWN = b"treecal.forecaster", b"treecal.shown"
"""Where the schema of a state says whose it is: exactly, and for people."""

Mask = NDArray[np.bool_]
Keyed = TreeForecaster | Corrector
"""What each key may have: a forecaster, or a corrector of a model's forecasts."""


def arrow() -> Any:
    """Import pyarrow."""
    return require("pyarrow", extra="spark", what="a table of keyed streams")


def schemas() -> dict[str, pa.Schema]:
    """Return the schema of each table, by name; `shards` is one of others, packed."""
    pa = arrow()
    text, whole, numbers = pa.string(), pa.int64(), pa.list_(pa.float64())
    head = {"key": text, "rounds": whole, "first": whole, "seq": whole}
    said = pa.schema(
        {"key": text, "round": whole, "seq": whole, **dict.fromkeys(("points", "weights", "mean"), numbers)}
    )
    return {
        "state": pa.schema({**head, "path": pa.binary(), "scale": pa.float64(), "format": pa.int32()}),
        "forecasts": said,
        "announced": said,
        "problems": pa.schema({"key": text, "seq": whole, "rows": whole, "kind": text, "detail": text}),
        "errors": pa.schema(
            {"key": text, "rounds": whole, "forecasts": whole, "exact": pa.float64(), "per_node": pa.float64()}
        ),
        "shards": pa.schema({"shard": pa.int32(), "blob": pa.binary()}),
    }


def as_one(**tables: pa.Table) -> pa.Table:
    """Return several of these tables as one, since a job has one output; a column `table` says which is which."""
    pa = arrow()
    parts = [part.append_column("table", pa.repeat(name, len(part))) for name, part in tables.items()]
    return pa.concat_tables([one_schema(*tables).empty_table(), *parts], promote_options="default")


def one_schema(*names: str) -> pa.Schema:
    """Return the schema of that one table."""
    pa = arrow()
    fields = {field.name: field for name in names for field in schemas()[name]}
    return pa.schema([*fields.values(), ("table", pa.string())])


def columns(thing: Keyed) -> list[str]:
    """Return the columns that an epoch reads; a corrector's rows have the model's forecasts too."""
    return ["key", "seq", *["forecast"] * isinstance(thing, Corrector), "outcome"]


def check_outcomes(schema: pa.Schema, space: ConvexSet, *, keyed: bool = True, forecasts: bool = False) -> None:
    """Raise unless a table holds outcomes: the columns `key` (if `keyed`), `seq`, `forecast` (if so) and `outcome`."""
    types, simplex = arrow().types, isinstance(space, Simplex)

    def whole(kind: Any) -> bool:
        return bool(types.is_signed_integer(kind) or (types.is_integer(kind) and kind.bit_width < 64))

    def text(kind: Any) -> bool:
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def vector(kind: Any) -> bool:
        listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return bool(listed and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))

    def outcome(kind: Any) -> bool:
        return vector(kind) or (simplex and whole(kind))

    listed = f"a list of {space.dim} numbers"
    expected = {"key": ("text", text)} if keyed else {}
    expected |= {"seq": ("a whole number", whole)} | ({"forecast": (listed, vector)} if forecasts else {})
    expected |= {"outcome": (listed + " or a class" * simplex, outcome)}
    hint = "outcomes are rows of " + "; ".join(f"{name}, {what}" for name, (what, _) in expected.items()) + "."
    for name, (what, good) in expected.items():
        if schema.names.count(name) != 1:
            has = "two columns" if name in schema.names else "no column"
            raise FileError(
                f"outcomes have {has} {name!r}; their columns are {', '.join(schema.names) or 'none'}.", hint=hint
            )
        if not good(kind := schema.field(name).type):
            raise FileError(f"the outcomes' column {name!r} is {kind}, expected {what}.", hint=hint)


def owned(state: pa.Table, forecaster: Keyed) -> pa.Table:
    """Return the state with the forecaster's configuration in its schema, which `check_state` compares."""
    return state.replace_schema_metadata({_OWNER: describe(forecaster), _SHOWN: repr(forecaster)})


def check_state(state: pa.Table, forecaster: Keyed) -> None:
    """Raise unless streams of this forecaster can resume from the table.

    What the paths hold is checked by the bank that takes them.
    """
    expected, owner = schemas()["state"], state.schema.metadata or {}
    if owner.get(_OWNER, own := describe(forecaster).encode()) != own:
        raise SnapshotError(
            f"the state is of {owner.get(_SHOWN, b'another forecaster').decode(errors='replace')}, not of "
            f"{forecaster!r}.",
            hint="resume with the forecaster that made the state.",
        )
    if not state.schema.equals(expected):
        raise SnapshotError(f"this is not the state of a shard: expected the columns {', '.join(expected.names)}.")
    formats = state.column("format").unique().to_pylist()
    if formats not in ([], [FORMAT]):
        raise SnapshotError(
            f"the state has format {', '.join(map(str, formats))}, and this treecal reads {FORMAT}.",
            hint="upgrade treecal.",
        )
    for name in ("key", "rounds", "first", "seq", "path"):
        if state.column(name).null_count:
            raise SnapshotError(f"the state has a row without {name!r}.")
    rounds = check_rounds("rounds", state.column("rounds").to_numpy(), len(state))
    if len(state.column("key").unique()) < len(state):
        raise SnapshotError("the state has a key twice.")
    if (state.column("first").to_numpy() > state.column("seq").to_numpy()).any():
        raise SnapshotError("the state has a key whose first sequence number is after its last.")
    if isinstance(forecaster, Corrector):
        expected_sizes: Any = np.full(len(state), 8 * sum(array.size for array in fresh(forecaster).values()))
    else:
        expected_sizes = 8 * width(forecaster) * forecaster.tree.heights(rounds)
    sizes = np.diff(_offsets(state.column("path").combine_chunks()))
    weighted = len(state) - state.column("scale").null_count  # only AdaptiveTreeCal has a scale
    mine = len(state) if isinstance(forecaster, AdaptiveTreeCal) else 0
    if weighted != mine or not np.array_equal(sizes, expected_sizes):
        raise SnapshotError(
            f"the state is not that of {forecaster!r}: its paths are of another kind or size.",
            hint="resume with the forecaster that made the state.",
        )


def width(forecaster: TreeForecaster) -> int:
    """Return how many numbers a stream keeps of each height: its sum and, if it is weighted, its cost and weight."""
    return forecaster.space.dim + 2 * isinstance(forecaster, AdaptiveTreeCal)


def pack(state: dict[str, Any], heights: Integers) -> list[pa.Array]:
    """Return the state of a `Bank`, whose streams have these heights, as two columns, `path` and `scale`.

    A path is little-endian float64, lowest height first and none above the stream's own: of each height the carried sum
    and, where heights are weighted, cost and weight. The scale is null where they are not.
    """
    pa = arrow()
    columns = [state["sums"], *(state[name][..., None] for name in ("costs", "weights") if name in state)]
    rows = np.concatenate(columns, axis=2).swapaxes(0, 1)
    ends = np.concatenate([[0], np.cumsum(heights * rows.shape[2] * 8)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise UnsupportedError(f"{len(heights):,} keys are too many for one shard.", hint="more shards.")
    flat = rows[_below(heights, rows.shape[1])].astype("<f8", copy=False)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(flat)]
    scale = pa.array(state["scale"]) if "scale" in state else pa.nulls(len(heights), pa.float64())
    return [pa.Array.from_buffers(pa.binary(), len(heights), buffers), scale]


def unpack(state: pa.Table, forecaster: TreeForecaster) -> dict[str, Any]:
    """Return the state of a `Bank` from the columns that `pack` made."""
    rounds, packed = state.column("rounds").to_numpy(), state.column("path").combine_chunks()
    heights, d, w = forecaster.tree.heights(rounds), forecaster.space.dim, width(forecaster)
    first, last = _offsets(packed)[[0, -1]] // 8
    rows = np.zeros((len(heights), int(heights.max(initial=forecaster.tree.heights(0))), w))
    if len(heights):
        flat = np.frombuffer(packed.buffers()[2], "<f8")[first:last]
        rows[_below(heights, rows.shape[1])] = flat.reshape(-1, w)
    rows = rows.swapaxes(0, 1)
    tree = {"rounds": rounds, "sums": rows[..., :d]}
    if w == d:
        return tree
    return tree | {"costs": rows[..., d], "weights": rows[..., d + 1], "scale": state.column("scale").to_numpy()}


def fresh(corrector: Corrector) -> dict[str, Array]:
    """Return what a new stream of a corrector keeps, if it is always as many numbers."""
    state = Bank(corrector, streams=1).get_state()
    if "objects" in state or getattr(corrector, "forget", False):
        raise ParameterError.expected(
            "corrector", corrector, "PlattScaling, TemperatureScaling, VectorScaling or Recalibrator, with forget=False"
        )
    return {name: array for name, array in state.items() if name not in ("start", "rounds")}


def pack_corrected(state: dict[str, Any]) -> list[pa.Array]:
    """Return the state of a `Bank` of correctors as two columns: `path`, all numbers of a stream; an empty `scale`."""
    pa, n = arrow(), len(state["rounds"])
    arrays = [array.reshape(n, -1) for name, array in state.items() if name not in ("start", "rounds")] if n else []
    rows = np.concatenate(arrays, axis=1) if n else np.empty((0, 1))
    if rows.nbytes > np.iinfo(np.int32).max:
        raise UnsupportedError(f"{n:,} keys are too many for one shard.", hint="more shards.")
    ends = np.arange(n + 1, dtype=np.int32) * (8 * rows.shape[1])
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(rows.astype("<f8", order="C"))]
    return [pa.Array.from_buffers(pa.binary(), n, buffers), pa.nulls(n, pa.float64())]


def unpack_corrected(state: pa.Table, bank: Bank) -> dict[str, Any]:
    """Return the state of a `Bank` of correctors like this one from the columns that `pack_corrected` made."""
    packed, n, at = state.column("path").combine_chunks(), len(state), 0
    start = fresh(cast(Corrector, bank.thing))
    rows = np.empty((n, sum(array.size for array in start.values())))
    if n:
        first, last = _offsets(packed)[[0, -1]] // 8
        rows[:] = np.frombuffer(packed.buffers()[2], "<f8")[first:last].reshape(n, -1)
    streams = {}
    for name, array in start.items():
        own = rows[:, at : at + array.size].reshape(n * len(array), *array.shape[1:])
        streams[name], at = np.ascontiguousarray(own), at + array.size
    return {"start": bank.thing.get_state(), "rounds": state.column("rounds").to_numpy(), **streams}


def _below(heights: Integers, most: int) -> Mask:
    """Return which of the heights up to the most each stream has, `(streams, most)`."""
    return np.arange(most) < heights[:, None]


def numbers(values: pa.Array, dim: int) -> Outcomes:
    """Return a column of outcomes as a bank takes them; null, or of another length, becomes −1 or NaN."""
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
    """Return forecasts on paths of these heights as three columns of lists: points, in sequence, weights, and mean.

    Without weights they are equal: points are then added up from the lowest, and divided once.
    """
    n, most, d = points.shape
    own, mean = _below(heights, most), np.zeros((n, d))
    for height in range(most):
        at = own[:, height]
        mean[at] += points[at, height] if weights is None else weights[at, height, None] * points[at, height]
    if weights is None:
        mean /= heights[:, None]
        weights = np.broadcast_to(1 / heights[:, None], own.shape)
    return [_lists(points[own], heights * d), _lists(weights[own], heights), _lists(mean, np.full(n, d))]


def _lists(values: Array, sizes: Integers) -> pa.Array:
    pa = arrow()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.ascontiguousarray(values).ravel()))


def _offsets(packed: pa.Array) -> Integers:
    raw = np.frombuffer(packed.buffers()[1], np.int32) if len(packed) else np.zeros(1, np.int32)
    return raw[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)
