"""What every state is checked for before anything resumes from it.

A state may come from a file that anybody wrote. First it is compared, part by part, with the state the object has: the
same names, the same kinds of values, finite numbers. Each class then checks in `_check` what its arguments imply:
shapes and counts, so that whatever resumes works. Nothing changes until all of that holds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator
from copy import deepcopy
from dataclasses import fields
from inspect import signature
from threading import RLock
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np

from treecal._typing import Integers, Saved
from treecal.exceptions import SnapshotError

MOST_ROUNDS = 2**62
"""No stream is longer: one more round can still be counted in 64 bits."""


class State:
    """The base of our dataclasses of state: equal when their fields are, arrays too."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment] # compared by value, and made of arrays


class Configured:
    """The base of what is made of arguments that never change, by name, and is copied as a whole or not at all."""

    _fields: ClassVar[tuple[str, ...]]
    """The names of the constructor's arguments."""

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __copy__(self) -> Self:
        return deepcopy(self)  # half a copy would share arrays that change

    def _fork(self) -> Self:
        """Return one that can learn or resume in its place, before it is known whether that will count."""
        return deepcopy(self)

    def __repr__(self) -> str:
        usual = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        given = {name: value for name, value in self.arguments().items() if not self._usual(value, usual[name])}
        space = given.pop("space", None)
        shown = [repr(space)] * (space is not None) + [f"{name}={value!r}" for name, value in given.items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _usual(self, value: Any, default: Any) -> bool:
        """Return whether an argument has its default value, and need not be shown."""
        return value is None or bool(value == default)


class Locked:
    """The base of what one thread at a time may change: a copy has a lock of its own."""

    _lock: RLock

    def _finish(self) -> None:
        """Do what an interrupted call left to be done."""

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._finish()
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: Saved) -> None:
        vars(self).update(state, _lock=RLock())


P = TypeVar("P", bound=Any)


def resumed(part: P, state: Any) -> P:
    """Return a copy of a forecaster, a corrector or a monitor with this state; any other raises."""
    twin = part._fork()
    twin.set_state(state)
    return cast(P, twin)


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Entries(Generic[K, T]):
    """Entries by name, of which a round replaces a few: there may be very many.

    `after` returns a store with these entries new, and shares all others with this one. Whoever commits a round puts
    the new store in place of the old one, by one assignment; the entries are written when the new store is first read.
    So a round that fails leaves the old store as it was, and once the new one was read the old one is of no more use.

    Examples
    --------
    >>> store = Entries({"a": 1})
    >>> after = store.after({"b": 2})
    >>> dict(store.read()), after.read()
    ({'a': 1}, {'a': 1, 'b': 2})
    """

    def __init__(self, entries: dict[K, T] | None = None) -> None:
        self._entries: dict[K, T] = {} if entries is None else entries
        self._new: dict[K, T] = {}

    def read(self) -> dict[K, T]:
        """Return all entries, which are not to be changed."""
        if self._new:
            self._entries.update(self._new)
            self._new = {}  # once: stores after this one share the entries
        return self._entries

    def after(self, entries: dict[K, T]) -> Entries[K, T]:
        """Return the store after a round that gives some names these values."""
        store = Entries(self.read())
        store._new = entries
        return store


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def check_names(where: str, state: Any, expected: Collection[str]) -> None:
    """Raise unless a state is a dictionary with exactly these keys."""
    if not isinstance(state, dict):
        raise SnapshotError(f"{where} is {_brief(state)}, expected a dictionary of {_listed(expected)}.")
    if missing := [name for name in expected if name not in state]:
        raise SnapshotError(f"{where} has no {missing[0]!r}, expected {_listed(expected)}.", hint=ELSEWHERE)
    if len(state) > len(expected):
        more = next(name for name in state if name not in expected)
        raise SnapshotError(f"{where} has {_brief(more)}, expected only {_listed(expected)}.", hint=ELSEWHERE)


def check_like(own: dict[str, Any], given: Any, where: str = "the state") -> None:
    """Raise unless a state has the names of another one, values of the same kinds, and finite numbers."""
    check_names(where, given, own)
    for name, value in given.items():
        _check_value(f"{where}'s {name}", own[name], value)


def _check_value(where: str, own: Any, given: Any) -> None:
    if own is None or given is None:  # what is not there yet
        pass
    elif isinstance(own, np.ndarray):
        if not isinstance(given, np.ndarray) or given.dtype not in (own.dtype, np.float64) or given.ndim != own.ndim:
            raise SnapshotError(f"{where} is {_brief(given)}, expected {own.dtype} in {own.ndim} dimensions.")
    elif _kind(own) != _kind(given):
        raise SnapshotError(f"{where} is {_brief(given)}, expected {_kind(own)}.")
    check_finite(where, given)


def check_finite(where: str, value: Any) -> None:
    """Raise unless all numbers within a value are finite."""
    if not all(np.isfinite(number).all() for number in _numbers(value)):
        raise SnapshotError(f"{where} is not finite.")


def _kind(value: Any) -> str:
    """Return what a value is, in words; an integer counts as a number where numbers are expected."""
    if isinstance(value, bool | np.bool_):
        return "True or False"
    if isinstance(value, int | float | np.number):
        return "a number"
    if isinstance(value, list | tuple):
        return "a list"
    return "text" if isinstance(value, str) else type(value).__name__


def _numbers(value: Any) -> Iterator[Any]:
    """Yield the floats within a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, float | np.floating) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        yield value


def check_array(
    name: str, array: Any, shape: tuple[int, ...], dtype: Any = np.float64, *, most: float = math.inf
) -> None:
    """Raise unless this is an array of exactly this shape and type, with finite entries, none larger than the most."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        raise SnapshotError(f"{name} is {_brief(array)}, expected {np.dtype(dtype)} of shape {shape}.", hint=ELSEWHERE)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SnapshotError(f"{name} is not finite.")
    if most < math.inf and np.abs(array).max(initial=0) > most:
        raise SnapshotError(f"{name} is up to {np.abs(array).max():g} in size, expected at most {most:g}.")


def check_count(name: str, count: Any, *, most: int = MOST_ROUNDS) -> None:
    """Raise unless this is a whole number from 0 to the most."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= most:
        raise SnapshotError(f"{name} is {_brief(count)}, expected a whole number from 0 to {most}.")


def check_number(name: str, value: Any, *, least: float, most: float) -> None:
    """Raise unless this is a number within these limits."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least <= value <= most:
        raise SnapshotError(f"{name} is {_brief(value)}, expected a number from {least:g} to {most:g}.")


def check_rounds(rounds: Any, streams: int) -> Integers:
    """Return the rounds of so many streams, or raise."""
    check_array("rounds", rounds, (streams,), np.int64)
    if ((rounds < 0) | (rounds > MOST_ROUNDS)).any():
        raise SnapshotError(f"rounds are {rounds.min()} to {rounds.max()}, expected 0 to {MOST_ROUNDS}.")
    return np.asarray(rounds)


ELSEWHERE = "resume with the class and the arguments that the state is from."


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "nothing"


def _brief(value: Any) -> str:
    """Return a value in a few words, whatever it is."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if isinstance(value, int) and not -(10**30) < value < 10**30:
        return f"an integer of about {math.log10(abs(value)):.0f} digits"
    shown = repr(value) if isinstance(value, str | int | float | np.generic | None) else f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


# NumPy reads the state of a random generator without checks: a place beyond the buffer reads foreign memory, and a
# generator that is stuck makes a draw loop for ever.
_KINDS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_LIMITS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
_WIDTHS = {"MT19937": 32, "PCG64": 128, "PCG64DXSM": 128, "Philox": 64, "SFC64": 64}  # bits of the other numbers


def generator_state(rng: np.random.Generator) -> Saved:
    """Return the generator's state as numbers, lists and dictionaries of them."""
    state: Saved = _plain(rng.bit_generator.state)
    return state


def generator_from(state: Any) -> np.random.Generator:
    """Return the generator of such a state; one that no generator has raises.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> generator_from(generator_state(rng)).random() == rng.random()
    True
    """
    kind = state.get("bit_generator") if isinstance(state, dict) else None
    if kind not in _KINDS:
        raise SnapshotError(f"the random generator is not one of {', '.join(_KINDS)}.")
    bits = getattr(np.random, kind)(0)
    if not _fits(state, _plain(bits.state), 2 ** _WIDTHS[kind]) or not _moves(kind, state["state"]):
        raise SnapshotError(f"the state of the random generator is not one of {kind}.")
    bits.state = state
    return np.random.Generator(bits)


def _fits(state: Any, own: Any, limit: int) -> bool:
    """Return whether a state has the form of another one, with numbers below the limit."""
    if isinstance(own, dict):
        return (
            isinstance(state, dict)
            and state.keys() == own.keys()
            and all(_fits(state[key], value, _LIMITS.get(key, limit - 1) + 1) for key, value in own.items())
        )
    if isinstance(own, list):
        return isinstance(state, list) and len(state) == len(own) and all(_fits(each, 0, limit) for each in state)
    if isinstance(own, str):
        return bool(state == own)
    return isinstance(state, int) and not isinstance(state, bool) and 0 <= state < limit


def _moves(kind: str, inner: dict[str, Any]) -> bool:
    """Return whether the generator ever leaves the state."""
    if kind == "MT19937":
        return any(inner["key"][1:])
    return bool(inner["inc"] % 2) if kind.startswith("PCG64") else True


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state
