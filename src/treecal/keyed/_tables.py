"""The tables that engines exchange, in Arrow: outcomes, state, forecasts and problems; and their conversion to arrays.

Numbers are never turned into text, and state does not depend on which other keys share its shard, so everything comes
back bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treecal._optional import require
from treecal._states import check_rounds
from treecal._typing import Array, Integers, Outcomes
from treecal.correctors import Corrector
from treecal.exceptions import FileError, ParameterError, SnapshotError
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal
from treecal.geometry import Simplex
from treecal.state import describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FORMAT = 4
"""Version of the state's layout."""
OTHER_FORMAT = "upgrade treecal if the format is newer; if it is older, replay the outcomes from the first on."

RESULTS = ("forecasts", "announced", "problems")
"""The tables that an epoch returns besides the state."""

_OWNER = b"treecal.forecaster"
_SHOWN = b"treecal.shown"
"""Where the schema of a state says whose it is: exactly, and for people."""

Mask = NDArray[np.bool_]


def arrow() -> Any:
    """Import pyarrow."""
    return require("pyarrow", extra="spark", what="a table of keyed streams")


def schemas() -> dict[str, pa.Schema]:
    """Return the schema of each table, by name; `shards` is one of others, packed."""
    pa = arrow()
    text = pa.string()
    whole = pa.int64()
    numbers = pa.list_(pa.float64())
    head = {"key": text, "rounds": whole, "first": whole, "seq": whole}
    forecast = pa.schema(
        {"key": text, "round": whole, "seq": whole, **dict.fromkeys(("points", "weights", "mean"), numbers)}
    )
    return {
        "state": pa.schema({**head, "record": pa.binary(), "format": pa.int32()}),
        "forecasts": forecast,
        "announced": forecast,
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


def check_columns(schema: pa.Schema, thing: Keyed, names: Sequence[str] = ()) -> None:
    """Raise unless rows have these columns, by default those that an epoch reads, and the types of their cells."""
    types = arrow().types
    space = thing.space
    simplex = isinstance(space, Simplex)

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
    kinds = {"key": ("text", text), "seq": ("a whole number", whole), "forecast": (listed, vector)}
    kinds |= {"outcome": (listed + " or a class" * simplex, outcome)}
    expected = {name: kinds[name] for name in names or columns(thing)}
    hint = "a row has " + "; ".join(f"{name}, {what}" for name, (what, _) in expected.items()) + "."
    for name, (what, good) in expected.items():
        if schema.names.count(name) != 1:
            has = "two columns" if name in schema.names else "no column"
            raise FileError(
                f"the rows have {has} {name!r}; their columns are {', '.join(schema.names) or 'none'}.", hint=hint
            )
        if not good(kind := schema.field(name).type):
            raise FileError(f"the column {name!r} is {kind}, expected {what}.", hint=hint)


def owned(state: pa.Table, forecaster: Keyed) -> pa.Table:
    """Return the state with the forecaster's configuration in its schema, which `check_state` compares."""
    mine = recipe(forecaster)
    return state.replace_schema_metadata({_OWNER: mine["arguments"], _SHOWN: mine["shown"]})


def check_state(state: pa.Table, forecaster: Keyed) -> None:
    """Raise unless streams of this forecaster can resume from the table.

    What the records hold is checked where they are unpacked.
    """
    expected = schemas()["state"]
    owner = state.schema.metadata or {}
    if owner.get(_OWNER, own := recipe(forecaster)["arguments"].encode()) != own:
        raise SnapshotError(
            f"the state is of {owner.get(_SHOWN, b'another forecaster').decode(errors='replace')}, not of "
            f"{forecaster!r}.",
            hint="resume with the forecaster that made the state.",
        )
    if "format" in state.column_names and (formats := state.column("format").unique().to_pylist()) not in (
        [],
        [FORMAT],
    ):
        raise SnapshotError(
            f"the state has format {', '.join(map(str, formats))}, and this treecal reads {FORMAT}.", hint=OTHER_FORMAT
        )
    if not state.schema.equals(expected):
        raise SnapshotError(f"this is not the state of a shard: expected the columns {', '.join(expected.names)}.")
    for name in ("key", "rounds", "first", "seq", "record"):
        if state.column(name).null_count:
            raise SnapshotError(f"the state has a row without {name!r}.")
    check_rounds(state.column("rounds").to_numpy(), len(state))
    if len(state.column("key").unique()) < len(state):
        raise SnapshotError("a key appears twice in the state.")
    if (state.column("first").to_numpy() > state.column("seq").to_numpy()).any():
        raise SnapshotError("the state has a key whose first sequence number comes after its last.")


def numbers(values: pa.Array, dim: int) -> Outcomes:
    """Return a column of outcomes as a bank takes them; null, or of another length, becomes −1 or NaN."""
    pa = arrow()
    if pa.types.is_integer(values.type):
        return np.array(values.cast(pa.int64()).fill_null(-1).to_numpy())  # our own: classes are places
    import pyarrow.compute as pc

    right = pc.list_value_length(values).fill_null(-1).to_numpy() == dim
    flat = pc.list_flatten(values.filter(pa.array(right))).cast(pa.float64())
    vectors: Array = np.full((len(values), dim), np.nan)
    vectors[right] = flat.to_numpy(zero_copy_only=False).reshape(-1, dim)  # a null entry is NaN
    return vectors


def forecast_columns(points: Array, weights: Array | None, sizes: Integers) -> list[pa.Array]:
    """Return forecasts as three columns of lists: points, in sequence, weights, and mean.

    Without weights they are equal: points are then added up in their order, and divided once.
    """
    n, most, d = points.shape
    own = np.arange(most) < sizes[:, None]
    mean = np.zeros((n, d))
    for height in range(most):
        at = own[:, height]
        mean[at] += points[at, height] if weights is None else weights[at, height, None] * points[at, height]
    if weights is None:
        mean /= sizes[:, None]
        weights = np.broadcast_to(1 / sizes[:, None], own.shape)
    return [_lists(points[own], sizes * d), _lists(weights[own], sizes), _lists(mean, np.full(n, d))]


def _lists(values: Array, sizes: Integers) -> pa.Array:
    pa = arrow()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.ascontiguousarray(values).ravel()))


Keyed = Forecaster | Corrector
"""What each key may have: a forecaster, or a corrector of a model's forecasts."""


def check_new(thing: Any, kind: Any = Keyed) -> None:
    """Raise unless every key can start from a copy of this, of the kind that is asked for."""
    name = "corrector" if kind is Corrector else "forecaster"
    if not isinstance(thing, kind):
        raise ParameterError.expected(name, thing, f"a {name}{' or a corrector' if kind is Keyed else ''}")
    if thing.rounds:
        raise ParameterError.expected(name, thing, "a new one", hint="this one has seen outcomes.")
    if not isinstance(thing, TreeCal | AdaptiveTreeCal) and any(map(horizon, _parts(thing))):
        raise ParameterError.expected(name, thing, "one whose parts have no horizon: trees without depth")


def horizon(thing: Any) -> int | None:
    """Return the number of rounds of a tree of fixed depth; None for all others."""
    return thing.tree.horizon if isinstance(thing, TreeCal | AdaptiveTreeCal) else None


def recipe(thing: Keyed) -> dict[str, str]:
    """Return what identifies it, for people and exactly."""
    return {"shown": repr(thing), "arguments": describe(thing)}


def _parts(thing: Any) -> Iterator[Any]:
    """Yield the forecasters that one is made of, at any depth."""
    for part in thing.arguments().values():
        if isinstance(part, Forecaster | Corrector):
            yield part
            yield from _parts(part)


def pyspark(module: str) -> Any:
    """Import a module of PySpark."""
    return require(module, extra="spark", what="running on Spark")


def spark_schema(schema: pa.Schema) -> Any:
    """Return an Arrow schema as Spark's."""
    return pyspark("pyspark.sql.pandas.types").from_arrow_schema(schema)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the schema of a DataFrame as Arrow's."""
    return pyspark("pyspark.sql.pandas.types").to_arrow_schema(frame.schema)
