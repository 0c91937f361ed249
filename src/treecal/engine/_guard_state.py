"""What the states of guarded streams must satisfy before a bank goes on with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._states import check_array, check_names, check_rounds, check_sums, slack
from treecal._typing import Array, Integers
from treecal.exceptions import SnapshotError
from treecal.forecasters import BinaryGrid, Guarded, Tracker, TreeCal
from treecal.forecasters._base import reach
from treecal.forecasters._codebook import Book
from treecal.forecasters._path import TreeState
from treecal.forecasters._tally import _norms
from treecal.geometry import Norm

_SPARE = 1 + 1e-6  # for rounding


def check_guards(state: dict[str, Any], thing: Guarded, fresh: dict[str, Any]) -> int:
    """Raise unless copies of a guarded forecaster can have this state; return how many they are.

    `fresh` is the state of no streams.
    """
    check_names("the state", state, fresh)
    n = len(state["rounds"]) if isinstance(state["rounds"], np.ndarray) and state["rounds"].ndim == 1 else 0
    columns, slots = (len(state[name]) if np.ndim(state[name]) else 0 for name in ("slots", "told"))
    ragged = {"points": columns, "biases": columns, "slots": columns, "told": slots, "owed": slots}
    for name, array in fresh.items():
        if isinstance(array, np.ndarray):
            check_array(name, state[name], (ragged.get(name, n), *array.shape[1:]), array.dtype)
    rounds, safe = check_rounds("rounds", state["rounds"], n), state["safe_rounds"]
    _within("the rounds of the safe part", safe, 0, rounds)
    _within("who forecast last", state["suspended"], 0, np.minimum(safe, 1))
    guard, most = thing._now[1], reach(thing.space, thing.norm) * _SPARE
    _within("the peaks", state["peak"], 0.0, guard.diameter * rounds * _SPARE)
    _check_trackers(state, thing.eager.source, rounds)  # type: ignore[attr-defined]
    _check_books(state, thing.eager._now[1].book, rounds - safe)  # type: ignore[attr-defined]
    told = np.repeat(np.arange(n), state["announced"])
    norms = np.bincount(told, _norms(thing.norm, state["owed"]), n)
    _within("the errors", state["error"], norms - 1e-6 * (rounds + 1) * most, (rounds - safe) * most)
    parts = {"safe": safe, "shadow": rounds} if guard.shadow is not None else {"safe": safe}
    for name, counts in parts.items():
        check_names(f"the {name} part", state[name], fresh[name])
        check_array(f"the {name} part's errors", state[name]["errors"], (n, 2))
        _within(f"the {name} part's errors", state[name]["errors"].sum(axis=1), -1e-6 * (counts + 1), counts * most)
        if isinstance(guard.safe, TreeCal):
            _check_trees(name, state[name], guard.safe, counts, most, thing.norm)
        else:
            _check_grids(name, state[name], guard.safe, counts, most)
    return n


def _within(what: str, values: Array, least: Any, most: Any) -> None:
    if not ((values >= least) & (values <= most)).all():
        raise SnapshotError(f"{what} are not those of so many rounds.")


def _check_trackers(state: dict[str, Any], tracker: Tracker, rounds: Integers) -> None:
    dim, longest = tracker.space.dim, float(rounds.max(initial=0))
    _within("the last classes", state["last"], np.where(rounds > 0, 0, -1), np.where(rounds > 0, dim - 1, -1))
    if (state["weights"] < 0).any() or (np.abs(state["weights"].sum(axis=1) - 1) > 1e-9).any():
        raise SnapshotError("the experts' weights are not distributions.")
    means, followed, seen = state["means"].reshape(-1, dim), state["followed"].reshape(-1, dim), state["seen"]
    check_sums("the means", means, np.ones(len(means)), tracker.space, rounds=longest)
    check_sums("the outcomes after each class", followed, seen.ravel(), tracker.space, rounds=longest)
    if (seen != np.rint(seen)).any() or (seen < 1).any():
        raise SnapshotError("the counts of the classes are not whole numbers from 1 on.")
    if seen.size and (seen.sum(axis=1) != seen.shape[1] + np.maximum(0, rounds - 1)).any():
        raise SnapshotError("the counts of the classes are not those of so many rounds.")


def _check_books(state: dict[str, Any], book: Book, rounds: Integers) -> None:
    """Check the books after so many rounds of the eager part."""
    used, announced, books = state["used"], state["announced"], len(book.sizes)
    most, one = reach(book.space, "l1") * _SPARE * rounds, np.minimum(rounds, 1)
    _within("the columns used", used, one[:, None], np.minimum(rounds, book.capacity)[:, None])
    _within("the points announced", announced, one, np.minimum(rounds, used.sum(axis=1)))
    _within("the books followed", state["lead"], 0, books - 1)
    if used.sum() != len(state["slots"]) or announced.sum() != len(state["told"]):
        raise SnapshotError("the columns used and the points announced are not as many as there are.")
    _within("the slots", state["slots"], -1, np.repeat(announced, used.sum(axis=1)) - 1)
    for name in ("points", "told"):
        check_sums(f"the books' {name}", state[name], np.ones(len(state[name])), book.space, rounds=1e9)
    homes = np.repeat(np.arange(used.size), used.ravel())
    sizes = np.bincount(homes, np.abs(state["biases"]).sum(axis=1), used.size).reshape(used.shape)
    _within("the books' biases", sizes, 0, most[:, None])
    _within("the books' growth", np.abs(state["growth"]), 0, most[:, None])
    _within("the squares", state["squares"], 0, (most * reach(book.space, "l1") * _SPARE)[:, None])


def _check_trees(name: str, part: dict[str, Any], safe: TreeCal, rounds: Integers, most: float, norm: Norm) -> None:
    n, dim, heights = len(rounds), safe.space.dim, safe.tree.heights(int(rounds.max(initial=0)))
    for what in ("sums", "path"):
        check_array(f"the {name} part's {what}", part[what], (n, heights, dim))
    safe._path.check(TreeState(rounds, np.ascontiguousarray(part["sums"].swapaxes(0, 1))))
    norms = _norms(norm, part["path"])
    _within(f"the {name} part's biases", norms, 0, rounds[:, None] * most)
    met = np.where(rounds > 0, safe.tree.heights(np.maximum(rounds - 1, 0)), 0)
    if norms[np.arange(heights) >= met[:, None]].any():
        raise SnapshotError(f"the {name} part's path is longer than its rounds allow.")


def _check_grids(name: str, part: dict[str, Any], safe: Any, rounds: Integers, most: float) -> None:
    assert isinstance(safe, BinaryGrid)
    n, points = len(rounds), safe.bins + 1
    check_array(f"the {name} part's bias", part["bias"], (n, points))
    check_array(f"the {name} part's biases", part["biases"], (n, points, 2))
    # A point p that was played with weight w has a bias of −wp to w(1 − p); all weights add up to the rounds.
    bias, room = part["bias"], np.array([(1 + slack(r)) * r for r in rounds.tolist()])
    farthest = np.where(bias > 0, safe._grid[:, 0], safe._grid[:, 1])
    shares = np.abs(bias) / np.where(farthest > 0, farthest, 1.0)
    if (np.abs(bias) > farthest * room[:, None]).any() or (shares.sum(axis=1) > room).any():
        raise SnapshotError(f"the {name} part's biases are more than its rounds can give.")
    _within(f"the {name} part's biases", np.abs(part["biases"]).sum(axis=(1, 2)), 0, 2 * rounds * most)
