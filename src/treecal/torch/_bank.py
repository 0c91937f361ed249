"""Bank: many streams at once, on the device where their keys and outcomes are."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from treecal._validate import whole_number
from treecal.engine import Bank as HostBank, new_treecal, read_outcomes
from treecal.exceptions import HorizonError, OutcomeError, ParameterError
from treecal.forecasters import TreeCal
from treecal.geometry import TOLERANCE, Box, ConvexSet, Simplex
from treecal.torch._read import as_tensor

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class BankForecasts(NamedTuple):
    """The forecasts of many streams, as tensors: what `tc.Bank.predict` returns as arrays.

    Attributes
    ----------
    points
        The points of each stream's path, `(streams, heights, d)`, lowest height first. Above a stream's own height
        they have no weight.
    weights
        Their weights, `(streams, heights)`.
    sizes
        The heights of each stream's path, `(streams,)`.

    Examples
    --------
    >>> import treecal as tc
    >>> Bank(tc.Simplex(2), streams=1).predict().mean
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """

    points: Tensor
    weights: Tensor
    sizes: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean forecast of each stream, `(streams, d)`."""
        return (self.weights[:, :, None] * self.points).sum(dim=1)


class Bank:
    """A `TreeCal` for each stream, on a device: `tc.Bank` for keys and outcomes that are there.

    *What agrees.* Each stream adds its outcomes in the order given, in float64, and carries as `TreeCal` does: counts,
    sums and points are those of `tc.Bank` bit for bit, for classes and for points of any set, on every device. `mean`
    is a sum of at most 64 products in another order; it agrees to 1e-15 of its size.

    A key that appears several times in one `update` learns in the order given: first all first outcomes, then all
    second ones, and so on. So an update takes as long as the stream with the most outcomes needs.

    Outcomes are checked before anything changes, and an invalid one raises, which waits for the device. Snapshots are
    those of `tc.Bank`: `tc.save(bank.bank(), path)`, and `Bank.from_bank(tc.load(path), device="cuda")`.

    Parameters
    ----------
    forecaster
        A new `TreeCal`, which is not changed; or a set, for `TreeCal` on it.
    streams
        Number of streams; `add` adds more.
    device
        Where they are.

    Examples
    --------
    >>> import torch
    >>> import treecal as tc
    >>> bank = Bank(tc.TreeCal(tc.Simplex(2), arity=2), streams=3)
    >>> bank.update(torch.tensor([0, 2, 0]), torch.tensor([0, 1, 0]))  # stream 0 twice, in this order
    >>> bank.rounds
    tensor([2, 0, 1])
    >>> bank.predict(torch.tensor([0, 2])).mean
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """

    def __init__(
        self, forecaster: ConvexSet | TreeCal, *, streams: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        found = new_treecal(forecaster, hint="tc.Bank takes others.")
        self.forecaster = found
        self.space = found.space
        self.tree = found.tree
        self._rounds = torch.zeros(0, dtype=torch.int64, device=device)
        self._sums = torch.zeros(self.tree.depth or 1, 0, self.space.dim, dtype=torch.float64, device=device)
        self._first, self._pull = (torch.tensor(part, device=device) for part in (found._path.first, found._path.pull))
        self.add(whole_number("streams", streams, least=0))

    @property
    def device(self) -> torch.device:
        """Where the streams are."""
        return self._rounds.device

    @property
    def rounds(self) -> Tensor:
        """Number of outcomes each stream has seen."""
        return self._rounds.clone()

    def __len__(self) -> int:
        return len(self._rounds)

    def add(self, count: int = 1) -> Tensor:
        """Add new streams; return their keys."""
        new = whole_number("count", count, least=0)
        old = len(self)
        self._rounds = torch.cat([self._rounds, self._rounds.new_zeros(new)])
        self._sums = torch.cat([self._sums, self._sums.new_zeros(len(self._sums), new, self.space.dim)], dim=1)
        return torch.arange(old, old + new, device=self.device)

    def predict(self, keys: Any = None) -> BankForecasts:
        """Return the forecasts of these streams, by default all, for their coming rounds."""
        chosen = slice(None) if keys is None else self._keys(keys)
        rounds = self._rounds[chosen]
        arity = self.tree.arity
        most = int(rounds.max()) if len(rounds) else 0
        if self.tree.depth is not None:
            self.tree.check(most + 1)
        count = self.tree.heights(most)
        points = self._sums.new_empty(len(rounds), count, self.space.dim)
        heights = torch.ones_like(rounds)
        share = 1 - self.forecaster.mix
        for height in range(count):
            length = arity**height
            seen = (rounds // length % arity * length).double()[:, None]
            mean = self._sums[height, chosen] / seen
            if self.forecaster.mix:
                mean = mean * share + self._pull
            points[:, height] = torch.where(seen > 0, mean, self._first)
            heights += rounds >= length * arity if height + 1 < count else 0
        if self.tree.depth is not None:
            heights.fill_(self.tree.depth)
        weights = (torch.arange(count, device=self.device) < heights[:, None]) / heights[:, None].double()
        return BankForecasts(points, weights, heights)

    def update(self, keys: Any, outcomes: Any) -> None:
        """Learn one outcome for each key, in the order given. An invalid one raises and changes nothing.

        Parameters
        ----------
        keys
            The streams, whole numbers: a tensor, or anything with DLPack. One that appears twice learns twice.
        outcomes
            Points of the set, `(n, d)`; or, on a simplex, the `n` classes as whole numbers.
        """
        chosen = self._keys(keys)
        rows = self._rows(outcomes)
        if len(rows) != len(chosen):
            raise ParameterError(f"there are {len(chosen)} keys and {len(rows)} outcomes, expected one each.")
        if not len(chosen):
            return
        order, waves = _waves(chosen)
        longest = int(self._rounds[chosen].max()) + len(waves)
        if self.tree.depth is not None and longest > self.tree.arity**self.tree.depth:
            self._check_horizon(chosen)
        if (more := self.tree.heights(longest) - len(self._sums)) > 0:
            self._sums = torch.cat([self._sums, self._sums.new_zeros(more, len(self), self.space.dim)])
        for wave in waves:
            own = order[wave]
            self._learn(chosen[own], rows[own])

    def _learn(self, keys: Tensor, rows: Tensor) -> None:
        """Add one outcome to each of some streams, all distinct."""
        now = self._rounds[keys] + 1
        arity = self.tree.arity
        sums = self._sums
        self._rounds[keys] = now
        ended = sums[0, keys]
        ended = ended.scatter_add_(1, rows[:, None], torch.ones_like(ended)) if rows.ndim == 1 else ended + rows
        sums[0, keys] = ended
        full = now == arity**self.tree.depth if self.tree.depth is not None else torch.zeros_like(now, dtype=torch.bool)
        # when a tree of fixed depth is full, nothing is carried
        height = 0
        risen = (now % arity == 0) & ~full
        while bool(risen.any()):
            keys = keys[risen]
            ended = ended[risen]
            now = now[risen] // arity
            sums[height, keys] = 0.0
            height += 1
            ended = sums[height, keys] + ended
            sums[height, keys] = ended
            risen = now % arity == 0

    def _keys(self, keys: Any) -> Tensor:
        chosen = _tensor("keys", keys, self.device)
        if chosen.ndim != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
            raise ParameterError(f"keys are {chosen.dtype} of shape {tuple(chosen.shape)}, expected integers, (n,).")
        chosen = chosen.to(torch.int64, copy=True)  # our own: another thread may write to the caller's after the check
        off = (chosen < 0) | (chosen >= len(self))
        if bool(off.any()):
            at = int(off.nonzero()[0])
            raise ParameterError.expected(
                f"key {at}", int(chosen[at]), f"0 to {len(self) - 1}", hint="bank.add(n) adds n new streams."
            )
        return chosen

    def _rows(self, outcomes: Any) -> Tensor:
        """Return outcomes as float64 rows or as classes, or raise."""
        given = _tensor("outcomes", outcomes, self.device)
        if given.ndim == 1 and isinstance(self.space, Simplex) and given.dtype in _WHOLE:
            rows = given.to(torch.int64, copy=True)
            fine = ((rows >= 0) & (rows < self.space.dim)).all()
        elif given.ndim == 2 and given.shape[1] == self.space.dim and given.is_floating_point():
            rows = given.double()
            fine = self._inside(rows)
        else:
            return self._read(given)
        return rows if bool(fine) else self._read(given)

    def _inside(self, rows: Tensor) -> Tensor:
        """Return whether all rows are surely points of the set; of sets but simplices and boxes the CPU knows."""
        if isinstance(self.space, Simplex):
            return ((rows.sum(dim=1) - 1).abs() <= 0.9 * TOLERANCE).all() & (rows >= 0).all()
        if isinstance(self.space, Box):
            low, high = (torch.from_numpy(np.array(edge, np.float64)).to(rows.device) for edge in self.space.bounds())
            return ((rows >= low) & (rows <= high)).all()
        return torch.tensor(False)

    def _read(self, given: Tensor) -> Tensor:
        """Return outcomes as the CPU reads them, or raise what it raises."""
        held = given.cpu()
        held = held.float() if held.dtype in (torch.bfloat16, torch.float16) else held
        try:
            return torch.from_numpy(np.array(read_outcomes(self.space, held.numpy()))).to(self.device)
        except OutcomeError as error:
            if error.round:  # these are rows, not rounds
                raise OutcomeError.at(error.round - 1, error.problem, hint=error.hint, where="in row") from None
            raise

    def _check_horizon(self, keys: Tensor) -> None:
        streams, counts = torch.unique(keys, return_counts=True)
        after = self._rounds[streams] + counts
        try:
            self.tree.check(int(after.max()))
        except HorizonError as error:
            raise HorizonError(f"stream {int(streams[after.argmax()])}: {error}") from None

    def bank(self) -> HostBank:
        """Return the bank on the CPU with the same state: what `tc.save` takes."""
        found = HostBank(self.forecaster)
        heights = self.tree.heights(int(self._rounds.max()) if len(self) else 0)
        found.set_state({"rounds": self._rounds.cpu().numpy(), "sums": self._sums[:heights].cpu().numpy()})
        return found

    @classmethod
    def from_bank(cls, bank: HostBank, *, device: torch.device | str = "cpu") -> Self:
        """Return a bank on a device with the state of a `tc.Bank` of `TreeCal`.

        Parameters
        ----------
        bank
            The bank.
        device
            Where the streams shall be.
        """
        found = cls(bank.thing, device=device)  # type: ignore[arg-type]
        state = bank.get_state()
        if set(state) != {"rounds", "sums"}:
            raise ParameterError(
                f"the bank also has {', '.join(sorted(set(state) - {'rounds', 'sums'}))}, expected a plain one.",
                hint="on a device, streams are numbered from 0, and have no scores or e-values.",
            )
        found._rounds, found._sums = (torch.tensor(state[name], device=device) for name in ("rounds", "sums"))
        return found

    def __repr__(self) -> str:
        return f"Bank({self.forecaster!r}: {len(self)} streams on {self.device})"


def _tensor(name: str, given: Any, device: torch.device) -> Tensor:
    """Return a tensor of the device, which its caller may not write to."""
    found = as_tensor(name, given)
    if found.device != device:
        raise ParameterError(f"{name} are on {found.device}, the bank on {device}.")
    return found


def _waves(keys: Tensor) -> tuple[Tensor, list[Tensor | slice]]:
    """Return an order of rows, and the parts of it in which each key appears once: first, second, … outcomes."""
    order = torch.sort(keys, stable=True)[1]
    own = keys[order]
    place = torch.arange(len(keys), device=keys.device)
    begins = torch.ones_like(own, dtype=torch.bool)
    begins[1:] = own[1:] != own[:-1]
    if bool(begins.all()):
        return order, [slice(None)]
    rank = place - torch.where(begins, place, 0).cummax(dim=0)[0]
    return order, [rank == wave for wave in range(int(rank.max()) + 1)]
