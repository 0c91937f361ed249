"""The pass over a log that counts its rows in bins: in the order of the rows, or in several threads.

Counts are whole numbers, so threads may add them in any order. What does depend on the order is done in it: naming the
first invalid row, windows of time, and sums of floats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Any

import numpy as np

from treecal._platform import processors
from treecal._typing import Integers
from treecal.auditing._counts import Actions, AuditRows, BinCounts
from treecal.auditing._groups import Groups
from treecal.auditing._memory import ArrayLog
from treecal.auditing._sql import whole_weights
from treecal.auditing._windows import Windows
from treecal.exceptions import FileError
from treecal.io import Chunk, Outcomes, Piece, Reading, library

Watch = Callable[[int, float | None], None]
"""Called every now and then with the number of rows read so far, and which share of all they are, if that is known."""

_THREADS = 8  # at most: each holds some ten megabytes
_FEW = 1 << 16  # rows that are not worth threads
_UNCOMPILED = 1 << 16  # probabilities: Python takes less than a second for them, where compiling takes several
_TICK = 0.1


def tally(rows: AuditRows, counts: BinCounts) -> None:
    """Add valid rows to the counts, by the kernel, which is imported when it is first needed."""
    from treecal.auditing._kernels import tally as kernel

    run = kernel.now if rows.forecasts.size <= _UNCOMPILED else kernel
    run(rows, counts)


def count_rows(
    outcomes: Outcomes | ArrayLog,
    groups: Groups,
    bins: int,
    scale: float | None,
    watch: Watch,
    windows: Windows | None,
    actions: Actions | None,
) -> BinCounts:
    """Read the log once, and count its valid rows."""
    cells = BinCounts.empty(classes=len(outcomes.labels), bins=bins)
    pieces: Sequence[Piece] = []
    if isinstance(outcomes, Outcomes) and windows is None and actions is None:
        pieces = outcomes.pieces()
    many = sum(piece.rows for piece in pieces) > _FEW and len(pieces) > 1
    if isinstance(outcomes, Outcomes) and many:
        counted, cells = _Lanes(outcomes, pieces, groups, scale, cells).run(watch)
    else:  # of a single piece that has to be read row by row, one thread reads while another counts
        counted, cells = _in_order(outcomes, groups, scale, cells, watch, windows, actions)
    if not counted:
        what = "no valid row" if scale is None else "no valid row of positive weight"
        left_out = f" {outcomes.problems}" if outcomes.problems.count else ""
        raise FileError(f"there is {what} in {outcomes.name}.{left_out}")
    return cells


def _in_order(
    outcomes: Outcomes | ArrayLog,
    groups: Groups,
    scale: float | None,
    cells: BinCounts,
    watch: Watch,
    windows: Windows | None,
    actions: Actions | None,
) -> tuple[int, BinCounts]:
    """Count chunk by chunk; return the number of rows that count, and the cells."""
    counted = 0
    seen = 0
    with ThreadPoolExecutor(1) as counter:
        done: Future[Any] = counter.submit(int)
        for chunk in outcomes:  # the next one is read and checked while this one is counted
            seen += len(chunk.rows)
            chunk, rows = _rows(chunk, groups, scale)
            done.result()
            cells = _with_room(cells, groups, rows)
            done = counter.submit(tally, rows, cells)
            if actions is not None:
                actions.add(rows, len(groups.index))
            if windows is not None:
                done.result()
                done = counter.submit(windows.add, rows, chunk.kept[windows.name], tally)
            counted += len(rows.outcomes)
            watch(seen, None)
        done.result()
    return counted, cells


def _rows(chunk: Chunk, groups: Groups, scale: float | None) -> tuple[Chunk, AuditRows]:
    """Return the rows of a chunk that count, and these as kernels take them."""
    weights = np.empty(0, np.int64)
    if scale is not None and chunk.weights is not None:
        chunk, weights = _of_weight(chunk, whole_weights(chunk.weights, scale))
    assert chunk.forecasts is not None
    home = groups.of([chunk.kept[name] for name in groups.by], len(chunk.rows))
    forecasts = np.ascontiguousarray(chunk.forecasts.T)
    outcomes = np.array(chunk.outcomes, np.int64)
    return chunk, AuditRows(forecasts, outcomes, home, weights)


def _with_room(cells: BinCounts, groups: Groups, rows: AuditRows) -> BinCounts:
    """Return the cells with room for these rows."""
    cells = cells.with_room(groups)
    if len(rows.weights):
        cells.rows[:] += np.bincount(rows.groups, minlength=len(cells.rows))
    return cells


def _of_weight(chunk: Chunk, weights: Integers) -> tuple[Chunk, Integers]:
    """Return the rows that count, and their weights."""
    counts = weights > 0
    if counts.all():
        return chunk, weights
    assert chunk.forecasts is not None
    kept = {
        name: column[counts] if isinstance(column, np.ndarray) else column.filter(library("pyarrow").array(counts))
        for name, column in chunk.kept.items()
    }
    return Chunk(chunk.rows[counts], chunk.outcomes[counts], chunk.forecasts[counts], kept), weights[counts]


class _Lanes:
    """Threads that each take one piece of the log after the other, until there are no more.

    Without groups each has cells of its own; with groups, of which there may be many, they share them.
    """

    def __init__(
        self, outcomes: Outcomes, pieces: Sequence[Piece], groups: Groups, scale: float | None, cells: BinCounts
    ) -> None:
        self._outcomes = outcomes
        self._pieces = pieces
        self._groups = groups
        self._scale = scale
        self._cells = cells
        self._lock = Lock()
        self._left = iter(range(len(pieces)))
        self._end = len(pieces)  # which it is no use to read on from, once one before it ends the audit
        self._seen = 0
        self._counted = 0
        self._kept = 0
        self._invalid: dict[int, list[int]] = defaultdict(list)
        self._more: dict[int, int] = defaultdict(int)
        self._errors: dict[int, Exception] = {}

    def run(self, watch: Watch) -> tuple[int, BinCounts]:
        """Count all pieces; return the number of rows that count, and the cells."""
        threads = min(processors(), _THREADS, len(self._pieces))
        total = sum(piece.rows for piece in self._pieces)
        with ThreadPoolExecutor(threads) as pool:
            lanes = {pool.submit(self._lane) for _ in range(threads)}
            try:
                while lanes:
                    done, lanes = wait(lanes, timeout=_TICK)
                    for lane in done:
                        lane.result()
                    watch(self._seen, self._seen / total)
            finally:
                self._end = 0  # of an interruption, or of an error that is ours
        self._settle()
        return self._counted, self._cells

    def _lane(self) -> None:
        shared = bool(self._groups.by)
        own = self._cells if shared else BinCounts(*(np.zeros_like(table) for table in self._cells))
        while (index := self._next()) is not None:
            try:
                self._count(index, None if shared else own)
            except Exception as error:  # raised later, unless an invalid row precedes it
                with self._lock:
                    self._errors[index], self._end = error, min(self._end, index + 1)
        if not shared:
            with self._lock:
                self._cells = self._cells.plus(own)

    def _next(self) -> int | None:
        with self._lock:
            return next((index for index in self._left if index < self._end), None)

    def _count(self, index: int, own: BinCounts | None) -> None:
        """Count a piece, in these cells, or in those that all share."""
        piece = self._pieces[index]
        outcomes = self._outcomes
        for seen, chunk, invalid in outcomes.read_piece(piece):
            if index >= self._end:
                return
            counted = 0
            if len(chunk.rows) and own is not None:
                _, rows = _rows(chunk, self._groups, self._scale)
                counted = len(rows.outcomes)
                tally(rows, _with_room(own, self._groups, rows))
            elif len(chunk.rows):
                with self._lock:
                    _, rows = _rows(chunk, self._groups, self._scale)
                    counted = len(rows.outcomes)
                    self._cells = _with_room(self._cells, self._groups, rows)
                    tally(rows, self._cells)
            self._note(index, seen, counted, invalid)
            if invalid and outcomes.problems.on_error == "stop":
                return

    def _note(self, index: int, seen: int, counted: int, invalid: Sequence[int] = ()) -> None:
        """Note what was read of a piece. Of invalid rows the first are kept, as many as problems hold."""
        problems = self._outcomes.problems
        with self._lock:
            self._seen += seen
            self._counted += counted
            if not invalid:
                return
            if problems.on_error == "stop":
                self._end = min(self._end, index + 1)
            self._invalid[index].extend(invalid)
            self._kept += len(invalid)
            if self._kept > 2 * problems.most:
                room = problems.most
                for each in sorted(self._invalid):
                    rows = self._invalid[each]
                    self._more[each] += len(rows[room:])
                    del rows[room:]
                    room -= len(rows)
                self._kept = problems.most

    def _settle(self) -> None:
        """Raise the first error, or name the invalid rows; check that none was lost."""
        outcomes = self._outcomes
        stops = self._outcomes.problems.on_error == "stop"
        first = min(self._errors, default=None)
        if first is not None and not (stops and any(index < first for index in self._invalid)):
            raise self._errors[first]
        pieces: dict[int, list[int]] = defaultdict(list)
        for index, piece in enumerate(self._pieces):
            pieces[id(piece.source)].append(index)
        for part in outcomes.source.parts():
            found = Reading(outcomes.problems)
            for index in pieces[id(part)]:
                found.add(self._pieces[index].rows, self._invalid[index])
                found.more += self._more[index]
            found.complete = not (stops and found.invalid)
            outcomes.settle(part, found)
