"""Four numbers at once, in kernels: a row has too few of them for LLVM to vectorise loops over it by itself.

`Lanes` are a vector of the processor. All sums are as written and never fused, but for `fma`, which norms may use.
Arrays are taken as they lie in memory, whatever their shape, and nothing checks their ends.

Chunks of four, which `chunk` and `with_chunk` read and write by number, lie in an array or, if there are few, in a
tuple, which the compiler keeps in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, register_model

WIDTH = 4
_DOUBLE = ir.DoubleType()
_WORD = ir.IntType(64)
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, WIDTH)
_WORDS = ir.VectorType(_WORD, WIDTH)

_compiled = cast(Callable[[Callable[..., Any]], Callable[..., Any]], intrinsic)


class Lanes(types.Type):
    """Four float64 numbers, as kernels hold them."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_LANES = Lanes()


@register_model(Lanes)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


# Memory.


def _entry(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Return where an entry of an array lies."""
    assert kind.layout == "C"
    return builder.gep(context.make_array(kind)(context, builder, value=array).data, [at])


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> tuple[Any, Any, int]:
    """Return where four entries of an array lie, from `at` on, of which type they are there, and the bytes of one."""
    entry = context.get_data_type(kind.dtype)
    vector = ir.VectorType(entry, WIDTH)
    place = _entry(context, builder, kind, array, at)
    return builder.bitcast(place, vector.as_pointer()), vector, context.get_abi_sizeof(entry)


def _wide(builder: Any, lanes: Any) -> Any:
    return lanes if lanes.type == _VECTOR else builder.fpext(lanes, _VECTOR)


@_compiled
def load(typing: Any, array: Any, at: Any) -> Any:
    """Return four entries of an array of float64 or float32, from `at` on."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        place, vector, size = _place(context, builder, array, *values)
        return _wide(builder, builder.load(place, align=size, typ=vector))

    return _LANES(array, types.intp), build


@_compiled
def load_some(typing: Any, array: Any, at: Any, count: Any) -> Any:
    """Return `count` entries of an array of float64 or float32, from `at` on, and zeros."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        data, start, held = values
        place, vector, size = _place(context, builder, array, data, start)
        name = f"llvm.masked.load.v{WIDTH}f{8 * size}.p0"
        zeros = ir.Constant(vector, None)
        return _wide(builder, _call(builder, name, vector, place, _INT(size), _first(builder, held), zeros))

    return _LANES(array, types.intp, types.intp), build


@_compiled
def store(typing: Any, array: Any, at: Any, lanes: Any) -> Any:
    """Write four entries of an array of float64, from `at` on."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        data, start, lanes = values
        place, _, size = _place(context, builder, array, data, start)
        builder.store(lanes, place, align=size)
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES), build


@_compiled
def store_some(typing: Any, array: Any, at: Any, lanes: Any, count: Any) -> Any:
    """Write the first `count` lanes to an array of float64, from `at` on."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        data, start, lanes, held = values
        place, _, size = _place(context, builder, array, data, start)
        name = f"llvm.masked.store.v{WIDTH}f64.p0"
        _call(builder, name, ir.VoidType(), lanes, place, _INT(size), _first(builder, held))
        return context.get_dummy_value()

    return types.void(array, types.intp, _LANES, types.intp), build


@_compiled
def get(typing: Any, array: Any, at: Any) -> Any:
    """Return one entry of an array; indexing would ask whether `at` counts from the end."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        return builder.load(_entry(context, builder, array, *values), typ=context.get_data_type(array.dtype))

    return array.dtype(array, types.intp), build


@_compiled
def put(typing: Any, array: Any, at: Any, value: Any) -> Any:
    """Write one entry of an array, as `get` reads it."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        builder.store(values[2], _entry(context, builder, array, *values[:2]))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), build


@_compiled
def prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Ask for an entry of an array that will be read and written soon; one that is not there does no harm."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        place = builder.bitcast(_entry(context, builder, array, *values), ir.IntType(8).as_pointer())
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), place, _INT(1), _INT(3), _INT(1))
        return context.get_dummy_value()

    return types.void(array, types.intp), build


# Chunks.


@_compiled
def no_chunks(typing: Any, few: Any) -> Any:
    """Return a tuple of zeros, as many chunks as `few` has entries."""
    kind = types.UniTuple(_LANES, len(few))

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(few), build


def _slot(context: Any, builder: Any, kind: Any, held: Any, c: Any) -> tuple[Any, Any]:
    """Return where chunk `c` lies, and what holds it: of a tuple a copy."""
    if isinstance(kind, types.Array):
        return _place(context, builder, kind, held, builder.mul(c, _WORD(WIDTH)))[0], None
    copy = cgutils.alloca_once_value(builder, held)
    return builder.gep(copy, [_INT(0), c], inbounds=True), copy


@_compiled
def chunk(typing: Any, held: Any, c: Any) -> Any:
    """Return chunk `c` of an array of float64 or a tuple."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        return builder.load(_slot(context, builder, held, *values)[0], align=8, typ=_VECTOR)

    return _LANES(held, types.intp), build


@_compiled
def with_chunk(typing: Any, held: Any, c: Any, lanes: Any) -> Any:
    """Return the array, whose chunk `c` is now another, or a tuple with it."""

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        before, number, lanes = values
        place, copy = _slot(context, builder, held, before, number)
        builder.store(lanes, place, align=8)
        if copy is not None:
            return builder.load(copy, typ=before.type)
        context.nrt.incref(builder, held, before)
        return before

    return held(held, types.intp, _LANES), build


# Arithmetic.


def _arithmetic(*kinds: Any, result: Any = _LANES) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function of LLVM's builder and of values of these kinds one that kernels call with the values."""

    def made(build: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(build)
        def typing(*_: Any) -> Any:
            return result(*kinds), lambda context, builder, _, values: build(builder, *values)

        return _compiled(typing)

    return made


def _call(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Call a function of LLVM's own."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def _first(builder: Any, count: Any) -> Any:
    """Return the mask of the first `count` lanes."""
    return builder.icmp_signed("<", ir.Constant(_WORDS, list(range(WIDTH))), _all(builder, count))


def _all(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
    return _shuffled(builder, builder.insert_element(nothing, value, _INT(0)), nothing, [0] * WIDTH)


def _shuffled(builder: Any, a: Any, b: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(order)), order))


@_arithmetic(types.float64)
def lanes_of(builder: Any, value: Any) -> Any:
    """Return a number in every lane."""
    return _all(builder, value)


@_arithmetic(_LANES, _LANES)
def plus(builder: Any, a: Any, b: Any) -> Any:
    """Return `a + b`."""
    return builder.fadd(a, b)


@_arithmetic(_LANES, _LANES, _LANES)
def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return `a * b + c`, rounded once where the processor can."""
    return _call(builder, f"llvm.fmuladd.v{WIDTH}f64", _VECTOR, a, b, c)


@_arithmetic(_LANES)
def magnitude(builder: Any, lanes: Any) -> Any:
    """Return the absolute values."""
    return _call(builder, f"llvm.fabs.v{WIDTH}f64", _VECTOR, lanes)


@_arithmetic(_LANES)
def root(builder: Any, lanes: Any) -> Any:
    """Return the square roots."""
    return _call(builder, f"llvm.sqrt.v{WIDTH}f64", _VECTOR, lanes)


@_arithmetic(_LANES, _LANES)
def with_signs(builder: Any, a: Any, b: Any) -> Any:
    """Return lanes that have a sign, −0.0 too, where one of two has."""
    return builder.bitcast(builder.or_(builder.bitcast(a, _WORDS), builder.bitcast(b, _WORDS)), _VECTOR)


@_arithmetic(_LANES, result=types.boolean)
def any_sign(builder: Any, lanes: Any) -> Any:
    """Return whether a lane has a sign."""
    signs = _call(builder, f"llvm.vector.reduce.or.v{WIDTH}i64", _WORD, builder.bitcast(lanes, _WORDS))
    return builder.icmp_signed("<", signs, _WORD(0))


@_arithmetic(_LANES, _LANES, _LANES)
def beyond(builder: Any, lanes: Any, limit: Any, before: Any) -> Any:
    """Return −1 in the lanes that exceed a limit or are NaN, and elsewhere what was there before."""
    return builder.select(builder.fcmp_unordered(">", lanes, limit), ir.Constant(_VECTOR, [-1.0] * WIDTH), before)


@_arithmetic(_LANES, result=types.float64)
def added(builder: Any, lanes: Any) -> Any:
    """Return the sum of the lanes."""
    halves = builder.fadd(*(_shuffled(builder, lanes, lanes, order) for order in ([0, 1], [2, 3])))
    return builder.fadd(*(builder.extract_element(halves, _INT(k)) for k in range(2)))


@_compiled
def both_added(typing: Any, a: Any, b: Any) -> Any:
    """Return the sum of the lanes of `a`, and that of the lanes of `b`."""
    kind = types.UniTuple(types.float64, 2)

    def build(context: Any, builder: Any, _: Any, values: Any) -> Any:
        pairs = builder.fadd(
            *(_shuffled(builder, values[0], values[1], order) for order in ([0, 4, 2, 6], [1, 5, 3, 7]))
        )
        both = builder.fadd(*(_shuffled(builder, pairs, pairs, order) for order in ([0, 1], [2, 3])))
        return context.make_tuple(builder, kind, [builder.extract_element(both, _INT(k)) for k in range(2)])

    return kind(_LANES, _LANES), build
