"""Whether the books are sound: the log is played again, and compared with what was announced and kept, bit for bit."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from treecal.exceptions import TreeCalError
from treecal.late import Opening
from treecal.serve._config import OtherVersionError, packed, unpacked
from treecal.serve._connections import Reader
from treecal.serve._player import Player
from treecal.serve._replay import StreamRow, begun, broken_links, replay, same, stream_rows
from treecal.serve._rounds import DIGEST, Round, deleted_rows

_MOST = 20  # problems of a stream that are listed


class Checked(NamedTuple):
    """What was found in a stream."""

    name: str
    rounds: int
    arrivals: int
    state: str
    problems: list[str]
    deleted: int = 0


def check_books(reader: Reader) -> list[Checked]:
    """Play every stream's log again, from its first row; return what was found.

    Every forecast must be what the stream would have announced, with the hash that the log had; numbers must have no
    gaps; the snapshot must be the state at its place; the rounds that wait must be those without an outcome.

    Where rows were deleted, the log is played from the last deletion on: what had been learned by then must be what it
    says. Rows from before have the hashes of their log, as far as none between them was deleted.
    """
    with reader.moment():
        return [_checked(reader, each) for each in stream_rows(reader)]


def _checked(reader: Reader, kept: StreamRow) -> Checked:
    problems: list[str] = []

    def check(player: Player, each: Round, opening: Opening) -> None:
        if each.state != player.state:
            problems.append(f"round {each.round}: the log before it is not the one it was announced after.")
        if each.round != player.rounds + 1:
            problems.append(f"round {each.round}: it follows on round {player.rounds}.")
        if not same(each, opening):
            problems.append(f"round {each.round}: what was announced is not what the log gives.")

    player = Player(kept.config, kept.parts)
    try:
        player = begun(reader, kept)
        problems += _base(reader, kept, player)
        for number, arrival, content in reader.query("snapshot", kept.stream):
            replay(reader, kept.stream, player, check=check, until=(number, arrival))
            if packed(player.get_state()) != bytes(content) and not _is_of_another_version(bytes(content)):
                problems.append(f"the snapshot after round {number} is not the state that the log gives.")
        replay(reader, kept.stream, player, check=check)
        if player.config != kept.config:
            problems.append("its settings are not those of the log.")
        ((last,),) = reader.query("last_arrival", kept.stream)
        if last != player.arrivals:
            problems.append(f"there are {player.arrivals} arrivals that fit, and the last one has number {last}.")
        problems += _pending(reader, kept, player)
    except Exception as error:  # of a damaged log anything may be true
        problems.append(f"the log cannot be played after round {player.rounds}: {type(error).__name__}, {error}")
    return Checked(kept.name, player.rounds, player.arrivals, player.state.hex(), problems[:_MOST], player.deleted)


def _base(reader: Reader, kept: StreamRow, player: Player) -> list[str]:
    """Check what the log is played from where rows were deleted, and the rows that are left from before."""
    for _, arrival, content in reader.query("base", kept.stream):
        found = list(islice(broken_links(reader, kept, player), _MOST))
        ((number, kind, _, _, point, *_),) = reader.query("arrivals_after", kept.stream, arrival, 1)
        noted = deleted_rows(point)[1] if (number, kind) == (arrival + 1, "deleted") else b""
        if noted != bytes(content[:DIGEST]):
            found.append("what it had learned when rows were deleted is not what the log says.")
        return found
    return []


def _is_of_another_version(content: bytes) -> bool:
    """Return whether a snapshot is whole, and none that this treecal reads: it replays the log instead."""
    try:
        unpacked(content)
    except OtherVersionError:
        return True
    except (TreeCalError, KeyError, TypeError, ValueError):
        pass
    return False


def _pending(reader: Reader, kept: StreamRow, player: Player) -> list[str]:
    """Compare the rounds that wait with those that the log says wait."""
    ((open_rounds,),) = reader.query("count_open", kept.stream)
    ((waiting,),) = reader.query("count_pending", kept.stream)
    if not open_rounds == waiting == player.pending:
        return [f"{waiting} rounds wait, the log has {open_rounds} without an outcome, and {player.pending} should."]
    return []
