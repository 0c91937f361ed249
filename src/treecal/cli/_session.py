"""A run of a stream: from a snapshot, which nobody else may use meanwhile, to the snapshot and the table it leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from treecal._atomic import check_regular, exclusive
from treecal.cli._options import Following, described
from treecal.cli._reader import Reader
from treecal.cli._rounds import Rounds
from treecal.cli._rows import blocks, end, first_rows, is_file, source_name
from treecal.cli._terminal import Exit, counted, say
from treecal.exceptions import FileError, HorizonError, ParameterError, TreeCalError
from treecal.io import Block, LearnedFiles, NewTable, Problems, class_labels, new_table
from treecal.late import Late
from treecal.monitor import Watched
from treecal.state import loads, read_notes, save

if TYPE_CHECKING:
    from treecal.cli._signals import Shield
    from treecal.correctors import Corrector
    from treecal.forecasters import Forecaster
    from treecal.io import Row
    from treecal.monitor import Monitor

    Followed = Corrector | Forecaster | Monitor

Open = Callable[[], AbstractContextManager[Iterator[Block]]]


_FEW = 8  # rows that are not worth being taken at once
_MANY = 4096  # rows after which Ctrl-C is heard


R = TypeVar("R", bound=Rounds)


@dataclass
class Session(Generic[R]):
    """What a run works on: the rounds, and how far the file has been learned."""

    rounds: R
    snapshot: Path | None
    every: int
    """Rows between snapshots; 0 for one at the end only."""
    files: LearnedFiles
    new_file: bool
    """Whether the file may be one that the snapshot does not know."""
    _rows: int = field(default=0, init=False)
    _is_file: bool = field(default=False, init=False)
    """Whether the rows come from a file whose rows are marked, and so can be read again."""
    _unfinished: Row | None = field(default=None, init=False)

    @contextmanager
    def reading(self, path: str, opened: Open, shield: Shield) -> Iterator[Iterator[Block]]:
        """Give the rows of a file that are still to be learned; those of a pipe are all."""
        skipped = 0
        self._is_file = self.snapshot is not None and is_file(path)
        if self._is_file:
            with opened() if self.files.last else nullcontext(()) as stream:
                skipped = self._learned(path, (row for block in shield.waiting(stream) for row in block.rows))
            if skipped:  # once the progress bar is gone
                were, them = ("row was", "it") if skipped == 1 else (f"{skipped:,} rows were", "them")
                say(f"{source_name(path)}: the first {were} learned before; resuming after {them}.")
        with opened() as stream:
            yield self._new(shield.waiting(stream), skipped)
        if self._unfinished is not None:
            say(
                f"{source_name(path)}, {self._unfinished.place}: the file ends before this row does, which may "
                "still be being written; it is left for the next run."
            )

    def _new(self, stream: Iterator[Block], skipped: int) -> Iterator[Block]:
        """Yield the rows after those that were learned; one that is still being written would be learned in part."""
        for block in stream:
            passed = min(skipped, len(block))
            skipped -= passed
            rows = block[passed:] if passed else block
            if self._is_file and len(rows) and not rows.rows[-1].whole:
                self._unfinished = rows.rows[-1]
                rows = rows[:-1]
            if len(rows):
                yield rows

    def _learned(self, path: str, stream: Iterator[Row]) -> int:
        """Return how many rows of a file were learned before."""
        name = source_name(path)
        last = self.files.last
        if last is None and self.rounds.learned and not self.new_file:
            raise FileError(
                f"{self.snapshot} holds {counted(self.rounds.learned, 'round')}, and no note of files they came from, "
                f"so {name} may be among them.",
                hint="if it is not, add --new-file; to start over, remove the snapshot.",
            )
        skipped = self.files.begin(name, stream, new=self.new_file)
        if skipped is None and last is not None:
            raise FileError(
                f"{name} does not begin with the {counted(last.rows, 'row')} of {last.name} that {self.snapshot} has "
                "learned: it was changed, or it is another one.",
                hint=f"new rows are appended, and old ones stay as they were. If all rows of {name} are new, add "
                f"--new-file; to start over, remove {self.snapshot}.",
            )
        return skipped or 0

    def keeps(self, failure: BaseException) -> bool:
        """Return whether what was learned until a failure is to be saved.

        If the reader of standard output has gone, nobody knows how much of it was read. A file is then read again from
        where this run began, or saved last; what arrived through a pipe does not come again.
        """
        gone = isinstance(failure, BrokenPipeError) and self._is_file
        return self.snapshot is not None and self.rounds.changed and not gone

    @property
    def _saves(self) -> bool:
        """Whether snapshots are due before the end."""
        return self.every > 0 and self.snapshot is not None

    @property
    def room(self) -> int:
        """The number of rows until the next snapshot is due."""
        return self.every - self._rows % self.every if self._saves else sys.maxsize

    def took(self, rows: Block) -> None:
        """Take note that rows have been dealt with."""
        self._rows += len(rows)
        if self._is_file:
            self.files.learned(rows.rows)
        if self._saves and self._rows % self.every == 0:
            self.save()

    def save(self) -> None:
        """Save all there is to resume from, if there is a snapshot and anything new for it."""
        if self.snapshot is not None and self.rounds.changed:
            notes = {"files": self.files.to_list(), "open": self.rounds.to_list()}
            save(self.rounds.saved, self.snapshot, notes={name: note for name, note in notes.items() if note})


@dataclass(frozen=True)
class Steps(Generic[R]):
    """What a command does with rows: with one, with many at once, before the first, and once rows are dealt with."""

    take: Callable[[R, Any], object]
    many: Callable[[R, Block], Many | None] = lambda rounds, block: None
    begin: Callable[[R], object] = lambda rounds: None
    after: Callable[[R], object] = lambda rounds: None


class Many(NamedTuple):
    """Rows that are perhaps taken at once: which of them may be, and how, given some; it returns what `Rounds` does."""

    plain: Any
    take: Callable[[slice], tuple[int, BaseException | None]]


class Ended(NamedTuple, Generic[R]):
    """What became of a run."""

    rounds: R
    problems: Problems
    interrupted: bool


def follow(
    path: str,
    reader: Reader,
    options: Following,
    session: AbstractContextManager[Session[R]],
    steps: Steps[R],
    shield: Shield,
) -> Ended[R]:
    """Follow rows, those that are plain many at once."""
    name = source_name(path)
    reader.check_first(name, first_rows(path, kind=options.kind))
    problems = Problems(name, options.on_error)

    def opened() -> AbstractContextManager[Iterator[Block]]:
        quiet = bool(reader.added) and options.id is None  # rows go to a table
        return blocks(path, reader, kind=options.kind, quiet=quiet)

    rounds: R | None = None
    try:
        with shield, session as run, run.reading(path, opened, shield) as stream:
            rounds = run.rounds
            steps.begin(rounds)
            for block in stream:
                _follow_block(run, block, steps, reader, problems, shield)
    except KeyboardInterrupt:
        if rounds is None:
            raise
        return Ended(rounds, problems, True)
    return Ended(rounds, problems, False)


def _follow_block(
    run: Session[R], block: Block, steps: Steps[R], reader: Reader, problems: Problems, shield: Shield
) -> None:
    many = steps.many(run.rounds, block) if len(block) >= _FEW else None
    others = np.flatnonzero(~many.plain) if many is not None else np.arange(len(block))
    at = 0
    while at < len(block):
        with shield.opened():
            pass
        next_other = np.searchsorted(others, at)
        end = min(int(others[next_other]) if next_other < len(others) else len(block), at + run.room, at + _MANY)
        if many is not None and end - at >= _FEW:
            try:
                done, failure = many.take(slice(at, end))
            except TreeCalError:  # the row that raises it will be named
                many = None
                continue
            if done:
                run.took(block[at : at + done])
            if failure is not None:
                raise failure
            if done:
                steps.after(run.rounds)
                at += done
                continue
        row = block.rows[at]
        at += 1
        try:
            steps.take(run.rounds, row.read())
        except TreeCalError as error:  # beyond the horizon every row is invalid
            complaint = reader.complaint(row.value, error)
            problems.add(row.place, complaint, stop=isinstance(error, HorizonError))
            run.took(block[at - 1 : at])
            continue
        run.took(block[at - 1 : at])
        steps.after(run.rounds)


def finished(found: Ended[Any], options: Following) -> Exit:
    """Report the invalid rows, and how far a run got that was interrupted; return the exit code."""
    code = end(found.problems)
    if not found.interrupted:
        return code
    saved = f", saved in {options.snapshot}" if options.snapshot is not None and found.rounds.changed else ""
    say(f"interrupted after {counted(found.rounds.learned, 'round')}{saved}.")
    return Exit.INTERRUPTED


@contextmanager
def following(
    asked: Followed,
    begin: Callable[..., R],
    options: Following,
    *,
    output: Path | None = None,
    force: bool = False,
    names: tuple[str, ...] = (),
) -> Iterator[Session[R]]:
    """Give what a run works on, and in the end write the table and save the snapshot, which belong together.

    Also after an error, where there is a snapshot: what it has learned is in the table. Without one, or if no row was
    followed, nothing is left. `begin` makes the rounds, as `Rounds` does.
    """
    snapshot = options.snapshot
    with ExitStack() as stack:
        thing = asked
        notes = dict[str, Any]()
        if snapshot is not None:
            stack.enter_context(exclusive(snapshot))
            thing, notes = _resumed(snapshot, asked)
        failure = None
        with ExitStack() as files:
            table: NewTable | None = None
            if output is not None:
                table = files.enter_context(new_table(output, columns=names, force=force))
            kept = snapshot is not None
            waiting = notes.get("open", ())
            rounds = begin(thing, names=names, table=table, waiting=waiting, limit=options.limit, kept=kept)
            learned = LearnedFiles(notes.get("files", ()))
            run = Session(rounds, snapshot, 0 if table else options.every, learned, options.new_file)
            try:
                yield run
            except BaseException as error:
                if not run.keeps(error):
                    raise
                failure = error
        run.save()
        if failure is not None:
            raise failure


def _resumed(path: Path, asked: Followed) -> tuple[Any, dict[str, Any]]:
    """Return what the snapshot holds, which must be what is asked for, and its notes; by default what is asked for."""
    if check_regular(path) is None:
        return asked, {}
    content = path.read_bytes()
    thing = loads(content)
    kept: Any = thing.thing if isinstance(thing, Late) else thing
    if isinstance(kept, Watched):
        kept = kept.monitor
    old = class_labels(kept.space)
    new = class_labels(asked.space)
    if kept.space != asked.space and len(old) == len(new) > 0:  # their probabilities would be mixed up
        hint = f"--classes {','.join(old)} resumes it."
        if kept.space.classes is None:
            hint = f"it has no class names: --dim {len(old)} resumes it. (0.1.0 numbered them in alphabetical order.)"
        raise ParameterError(f"the classes of {path} are {', '.join(old)}, not {', '.join(new)}.", hint=hint)
    if described(kept) != described(asked):
        raise ParameterError(
            f"{path} holds {described(kept)}, but the options ask for {described(asked)}.",
            hint="use the options it was created with, or another snapshot.",
        )
    return thing, read_notes(content)
