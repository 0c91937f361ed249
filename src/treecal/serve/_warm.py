"""What streams need is compiled before the writer needs it: it would be held up, and all streams with it, for seconds.

Numba compiles a function when it is first called, and keeps it in a cache for the next process, which loads it from
there. So a few rounds are played in books that are thrown away: of all kinds of streams that there are before the
server is ready, and of a new kind before it is created.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from contextlib import suppress
from tempfile import TemporaryDirectory

import msgspec
import numpy as np

from treecal.exceptions import TreeCalError
from treecal.serve._books import Books
from treecal.serve._config import space_of
from treecal.serve._connections import open_store
from treecal.serve._refusals import Refusal
from treecal.serve._wire import NewForecast, NewOutcome, NewStream, Part

_USUAL = NewStream("usual", classes=["no", "perhaps", "yes"], corrector=Part("vector"))
_ROUNDS = 4  # the first alone, the others together: these are not the same code
_Kind = tuple[str | None, str | None, bool, bool]
_compiled: set[_Kind] = set()


def warm_up(streams: Iterable[NewStream]) -> list[str]:
    """Play a few rounds of each kind of stream that was not played yet, and of the usual one; return the kinds.

    Examples
    --------
    >>> _ = warm_up([])
    >>> warm_up([NewStream("rain", classes=["no", "yes"], forecaster=Part("running-mean"))])
    ['running-mean']
    """
    kinds = {kind: each for each in (_USUAL, *streams) if (kind := _kind(each)) not in _compiled}
    if not kinds:
        return []
    with (
        suppress(TreeCalError, OSError),  # what is not compiled now is compiled later
        TemporaryDirectory(prefix="treecal-warm-") as folder,
        open_store(f"{folder}/books.sqlite") as store,
    ):
        books = Books(store)
        for number, each in enumerate(kinds.values()):
            _play(books, msgspec.structs.replace(each, name=f"kind-{number}"))
    _compiled.update(kinds)
    return [corrector or forecaster or "as it is" for corrector, forecaster, *_ in kinds]


def set_aside() -> None:
    """Leave all that is there now out of the garbage collector's passes: compiled code stays as long as the process.

    A full pass over it stops all threads, for some 50 ms where it was loaded and twice as long where it was compiled
    here; the more requests are under way, the more often.
    """
    gc.collect()
    gc.freeze()


def _kind(new: NewStream) -> _Kind:
    corrector, forecaster = (part.name if part else None for part in (new.corrector, new.forecaster))
    return corrector, forecaster, new.gate, bool(new.group)


def _play(books: Books, new: NewStream) -> None:
    books.store.begin()
    with suppress(Refusal):  # whoever sends such a thing will hear it
        points = space_of(new).sample(np.random.default_rng(0), _ROUNDS).tolist()
        given = [None if new.forecaster is not None else point for point in points]
        tags = dict.fromkeys(new.group, "")
        forecasts = [NewForecast(str(k), p=p, tags=tags) for k, p in enumerate(given)]
        number = getattr(space_of(new), "low", 0.0) if new.set is not None and new.set.name == "Cdf" else None
        outcomes = [
            NewOutcome(new.name, str(k), 0 if new.classes else point if number is None else number)
            for k, point in enumerate(points)
        ]
        books.create(new)
        for part in (slice(1), slice(1, None)):
            books.forecast(new.name, forecasts[part])
            books.settle(outcomes[part])
    books.store.rollback()
    books.forget()
