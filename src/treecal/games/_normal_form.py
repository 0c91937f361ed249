"""Games in normal form: all players choose an action at once, and the profile of actions sets what each is paid."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._optional import require
from treecal._typing import Array
from treecal._validate import finite_array, whole_number
from treecal.exceptions import ParameterError, TreeCalError, UnsupportedError
from treecal.geometry import TOLERANCE, Value, frozen, within_reach

_Named = tuple[str, Iterable[str]]


class Game(Value):
    """A game of two or more players, given by what each is paid in every profile of actions. Immutable.

    Learners take losses in `[0, 1]`, so each player's payoffs are scaled: `loss = (high − payoff) / span`, with `high`
    the player's best payoff and `span` its distance to the worst; losses are 0 for a player whose payoff is constant.
    Gaps and regrets are in payoff units.

    Parameters
    ----------
    payoffs
        One array for each player, all of shape `(a_1, …, a_n)`: entry `(s_1, …, s_n)` of the i-th is what player i is
        paid when the players choose those actions. Two matrices are a bimatrix game.
    names
        For each player its name and those of its actions; by default numbers. Games are equal whatever their names.

    Attributes
    ----------
    payoffs
        The arrays, read-only.
    names
        For each player its name and those of its actions.
    shape
        Number of actions of each player.
    high, span
        Each player's best payoff, and how far its worst lies below: the scale of losses.

    Examples
    --------
    >>> chicken = Game([[[6, 2], [7, 0]], [[6, 7], [2, 0]]])
    >>> chicken
    Game(2 players with 2 × 2 actions)
    >>> chicken.correlated_gap([[0.5, 0.25], [0.25, 0.0]])
    0.0
    >>> Game([[[6, 2], [7, 0]], [[6, 7]]])
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: payoffs[1] has shape (1, 2), expected (2, 2) as for player 0.
    """

    _fields = ("payoffs",)

    def __init__(self, payoffs: Sequence[ArrayLike] | Array, *, names: Iterable[_Named] | None = None) -> None:
        if not isinstance(payoffs, Iterable):
            raise ParameterError.expected("payoffs", payoffs, "one array for each player")
        arrays = tuple(within_reach(f"payoffs[{i}]", array) for i, array in enumerate(payoffs))
        if len(arrays) < 2:
            raise ParameterError(
                f"payoffs has length {len(arrays)}, expected an array for each of two or more players.",
                hint="for a single player the best action is the one with the largest payoff.",
            )
        shape = arrays[0].shape
        for i, array in enumerate(arrays):
            if array.shape != shape:
                raise ParameterError(f"payoffs[{i}] has shape {array.shape}, expected {shape} as for player 0.")
        if len(shape) != len(arrays):
            raise ParameterError(
                f"{len(arrays)} arrays of payoffs have shape {shape}, expected {len(arrays)} dimensions: "
                "one axis for each player's actions.",
                hint="a zero-sum game of one matrix is Game.zero_sum(A).",
            )
        if min(shape) < 2:
            raise ParameterError(
                f"player {int(np.argmin(shape))} has {min(shape)} action{'s' * (min(shape) != 1)}, expected 2 or more.",
                hint="leave out players with a single action.",
            )
        if names is None:
            names = [(f"player {i + 1}", tuple(map(str, range(count)))) for i, count in enumerate(shape)]
        self.names = tuple((str(player), tuple(map(str, actions))) for player, actions in names)
        if tuple(len(actions) for _, actions in self.names) != shape:
            raise ParameterError(f"names are {self.names}, expected one for each player and each of {shape} actions.")
        self.payoffs = arrays
        self.shape = shape
        self.high = frozen(np.array([a.max() for a in arrays]))
        self.span = frozen(self.high - [a.min() for a in arrays])
        # Losses, not payoffs, are contracted, so that a large constant in the payoffs does not drown their differences.
        self._losses = [
            frozen((high - a) / (span or 1.0)) for a, high, span in zip(arrays, self.high, self.span, strict=True)
        ]

    @classmethod
    def zero_sum(cls, matrix: ArrayLike) -> Game:
        """Return the two-player game in which the second player pays the first `matrix[row, column]`.

        Examples
        --------
        >>> Game.zero_sum([[1, -1], [-1, 1]]).payoffs[1].tolist()
        [[-1.0, 1.0], [1.0, -1.0]]
        """
        A = finite_array("matrix", matrix, ndim=2)
        return cls([A, 0.0 - A])

    @classmethod
    def from_gambit(cls, game: Any) -> Game:
        """Return a pygambit game in normal form: a strategic one as it is, an extensive one reduced.

        Examples
        --------
        >>> import pygambit
        >>> pennies = pygambit.StrategicGame.from_arrays([[1, -1], [-1, 1]], [[-1, 1], [1, -1]])
        >>> Game.from_gambit(pennies) == Game.zero_sum([[1, -1], [-1, 1]])
        True
        """
        return cls(_payoffs_of_gambit(game), names=[(one, game.get_strategies(one)) for one in game.players])

    @classmethod
    def from_openspiel(cls, game: Any) -> Game:
        """Return an OpenSpiel game of one simultaneous move: matrix, tensor or any other one-shot game.

        Examples
        --------
        >>> import pyspiel
        >>> Game.from_openspiel(pyspiel.load_game("matrix_mp")) == Game.zero_sum([[1, -1], [-1, 1]])
        True
        """
        return cls(_payoffs_of_openspiel(game))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Game:
        """Return the game in an `.nfg` file, by pygambit.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "pennies.nfg")
        ...     _ = path.write_text(Game.zero_sum([[1, -1], [-1, 1]]).to_gambit().to_nfg())
        ...     Game.read(path)
        Game(2 players with 2 × 2 actions)
        """
        gambit = _package("pygambit")
        try:
            return cls.from_gambit(gambit.read_nfg(os.fspath(path)))
        except TreeCalError:
            raise
        except ValueError as error:
            raise ParameterError(f"{os.fspath(path)} is not a game in nfg format: {error}") from None

    def to_gambit(self) -> Any:
        """Return the game as a pygambit `StrategicGame`, for its solvers and file formats."""
        return _package("pygambit").StrategicGame.from_arrays(*self.payoffs)

    @property
    def players(self) -> int:
        """Number of players."""
        return len(self.payoffs)

    def losses(self, mixtures: Sequence[ArrayLike]) -> list[Array]:
        """Return, for each player, the expected loss in `[0, 1]` of each of its actions against the others' mixtures.

        Parameters
        ----------
        mixtures
            For each player, the weights of its actions; a player's own do not affect its losses.

        Examples
        --------
        >>> Game.zero_sum([[1, -1], [-1, 1]]).losses([[1.0, 0.0], [0.75, 0.25]])
        [array([0.25, 0.75]), array([1., 0.])]
        """
        if len(mixtures) != self.players:
            raise ParameterError(f"mixtures has length {len(mixtures)}, expected {self.players}, one for each player.")
        read = [
            as_distribution(f"mixture of player {i}", w, shape=self.shape[i : i + 1]) for i, w in enumerate(mixtures)
        ]
        return self.trusted_losses(read)

    def trusted_losses(self, mixtures: Sequence[Array]) -> list[Array]:
        """Return the same for mixtures that are known to be valid."""
        answer = []
        for player, loss in enumerate(self._losses):
            for w in reversed(mixtures[player + 1 :]):
                loss = np.add.reduce(loss * w, axis=-1)  # not by BLAS, so that all processors play the same
            for w in mixtures[:player]:
                loss = np.add.reduce(w[:, None] * loss.reshape(len(w), -1), axis=0)
            answer.append(np.minimum(loss.reshape(-1), 1.0))
        return answer

    def expected_payoffs(self, joint: ArrayLike) -> Array:
        """Return what each player is paid on average when profiles are drawn from the joint distribution.

        Examples
        --------
        >>> Game.zero_sum([[1, -1], [-1, 1]]).expected_payoffs([[0.5, 0.0], [0.0, 0.5]])
        array([ 1., -1.])
        """
        x = as_distribution("joint", joint, shape=self.shape)
        return np.array([(x * a).sum() for a in self.payoffs])

    def correlated_gap(self, joint: ArrayLike) -> float:
        """Return the least ε for which the joint distribution is an ε-correlated equilibrium, in payoff units.

        That is the most that one player would gain on average by a fixed rule "when recommended a, play b instead".
        For the average joint play of learners it equals the largest of their swap regrets per round.

        Parameters
        ----------
        joint
            The probability of each profile, of the game's shape.

        Examples
        --------
        >>> pennies = Game.zero_sum([[1, -1], [-1, 1]])
        >>> pennies.correlated_gap([[0.25, 0.25], [0.25, 0.25]])
        0.0
        >>> pennies.correlated_gap([[0.5, 0.0], [0.0, 0.5]])
        2.0
        """
        return max(self._gains(swap_gain, joint))

    def coarse_gap(self, joint: ArrayLike) -> float:
        """Return the least ε >= 0 for which the joint distribution is an ε-coarse correlated equilibrium.

        That is the most that one player would gain on average by always playing one action, in payoff units: at most
        the correlated gap, and 0 if every such action costs more.

        Parameters
        ----------
        joint
            The probability of each profile, of the game's shape.

        Examples
        --------
        >>> Game.zero_sum([[1, -1], [-1, 1]]).coarse_gap([[0.5, 0.0], [0.0, 0.5]])
        1.0
        """
        return max(0.0, *self._gains(external_gain, joint))

    def _gains(self, gain: Callable[[Array], float], joint: ArrayLike) -> list[float]:
        """Return what each player gains by its best deviation, in payoff units."""
        x = as_distribution("joint", joint, shape=self.shape)
        players = zip(self._losses, self.span, strict=True)
        return [float(span) * gain(deviations(loss, x, player=i)) for i, (loss, span) in enumerate(players)]

    def correlated_equilibrium(self, *, objective: str | int | ArrayLike = "welfare") -> Array:
        """Return the correlated equilibrium that maximises the objective, by linear program (HiGHS).

        Its gap is at most 1e-9 of each player's span, or it raises. The program has one variable for each profile and
        one constraint for each pair of actions of one player.

        Parameters
        ----------
        objective
            "welfare" for the sum of payoffs; a player's number for its own payoff; or an array of the game's shape,
            whose expectation is maximised: `-game.payoffs[0]` finds the worst equilibrium for player 0.

        Examples
        --------
        No Nash equilibrium of chicken pays the two more than 9⅓ together; a mediator does better.

        >>> chicken = Game([[[6, 2], [7, 0]], [[6, 7], [2, 0]]])
        >>> joint = chicken.correlated_equilibrium()
        >>> joint.round(9)
        array([[0.5 , 0.25],
               [0.25, 0.  ]])
        >>> round(float(chicken.expected_payoffs(joint).sum()), 9)
        10.5
        """
        return best_equilibrium(self._losses, self._reward(objective), coarse=False)

    def coarse_equilibrium(self, *, objective: str | int | ArrayLike = "welfare") -> Array:
        """Return the coarse correlated equilibrium that maximises the objective.

        As `correlated_equilibrium`, with one constraint for each action: there are more coarse equilibria, and the best
        is at least as good.

        Parameters
        ----------
        objective
            "welfare", a player's number, or an array of the game's shape.

        Examples
        --------
        >>> chicken = Game([[[6, 2], [7, 0]], [[6, 7], [2, 0]]])
        >>> round(float(chicken.expected_payoffs(chicken.coarse_equilibrium()).sum()), 9)
        10.5
        """
        return best_equilibrium(self._losses, self._reward(objective), coarse=True)

    def _reward(self, objective: str | int | ArrayLike) -> Array:
        if isinstance(objective, str):
            if objective != "welfare":
                raise ParameterError.expected("objective", objective, '"welfare", a player\'s number or an array')
            return np.asarray(sum(self.payoffs))
        if not isinstance(objective, Iterable):
            player = whole_number("objective", objective, least=0)
            if player >= self.players:
                raise ParameterError.expected("objective", player, f"a player's number, below {self.players}")
            return self.payoffs[player]
        array = within_reach("objective", objective)
        if array.shape != self.shape:
            raise ParameterError(f"objective has shape {array.shape}, expected {self.shape}.")
        return array

    def __repr__(self) -> str:
        return f"Game({self.players} players with {' × '.join(map(str, self.shape))} actions)"


def as_distribution(name: str, value: ArrayLike, *, shape: tuple[int, ...]) -> Array:
    """Return non-negative weights divided by their sum, which must be 1 within the tolerance."""
    weights = finite_array(name, value)
    if weights.shape != shape:
        raise ParameterError(f"{name} has shape {weights.shape}, expected {shape}.")
    if weights.min() < -TOLERANCE:
        where = np.unravel_index(int(weights.argmin()), shape)
        raise ParameterError(f"{name} is {weights.min():g} at {[int(i) for i in where]}, expected 0 or more.")
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not abs(total - 1) <= TOLERANCE:
        raise ParameterError(f"{name} sums to {total:.10g}, expected 1 within {TOLERANCE:g}.")
    weights = np.maximum(weights, 0)
    return np.asarray(weights / weights.sum())


def _package(name: str) -> Any:
    return require(name, extra="games", what="exchanging games")


def _payoffs_of_gambit(game: Any) -> list[Array]:
    """Return each player's payoffs in a pygambit game."""
    if not isinstance(game, _package("pygambit").Game):
        raise ParameterError.expected("game", game, "a pygambit Game")
    # Gambit's numbers are exact, rational or decimal: each is rounded once.
    try:
        return [np.array(array, dtype=np.float64) for array in game.to_arrays(dtype=float)]
    except OverflowError:
        raise ParameterError("a payoff of the game is too large for a float, expected less than 1.8e308.") from None


def _payoffs_of_openspiel(game: Any) -> list[Array]:
    """Return each player's payoffs in an OpenSpiel game of one simultaneous move."""
    spiel = _package("pyspiel")
    if not isinstance(game, spiel.Game):
        raise ParameterError.expected("game", game, "an OpenSpiel Game", hint="pyspiel.load_game(name) makes one.")
    if not isinstance(game, spiel.MatrixGame | spiel.TensorGame):
        if game.get_type().information != spiel.GameType.Information.ONE_SHOT:
            raise UnsupportedError.by(
                game,
                "payoff arrays",
                "it is played over several moves",
                hint="pyspiel.extensive_to_tensor_game(game) converts a small one; the result is exponentially larger.",
            )
        game = spiel.extensive_to_tensor_game(game)
    return [np.array(game.player_utilities(i), dtype=np.float64) for i in range(game.num_players())]


GAP = 1e-9
"""The largest gap, as a share of a player's range of payoffs, that a solved equilibrium may have."""


def deviations(losses: Array, joint: Array, *, player: int) -> Array:
    """Return `V[a, b]`: the player's loss where `a` is recommended, had it always played `b` there."""
    recommended = np.moveaxis(joint, player, 0).reshape(joint.shape[player], -1)
    played = np.moveaxis(losses, player, 0).reshape(joint.shape[player], -1)
    return np.asarray(recommended @ played.T)


def swap_gain(table: Array) -> float:
    """Return what the best swap of actions saves, `Σ_a max_b V[a, a] − V[a, b]`: never negative."""
    return float((table.diagonal() - table.min(axis=1)).sum())


def external_gain(table: Array) -> float:
    """Return what the best single action saves, `max_b Σ_a V[a, a] − V[a, b]`: negative if every one costs more."""
    return float(table.trace() - table.sum(axis=0).min())


def best_equilibrium(losses: Sequence[Array], reward: Array, *, coarse: bool) -> Array:
    """Return the (coarse) correlated equilibrium of greatest expected reward, by HiGHS on sparse constraints.

    The program is: over `x >= 0` with `Σ_s x(s) = 1`, maximise `Σ_s x(s)·reward(s)` subject to, for every player and
    every action `b`, `Σ_{s: s_i = a} x(s)·(ℓ_i(s) − ℓ_i(b, s_−i)) <= 0`: for every recommendation `a`, or, in a coarse
    equilibrium, summed over `a`. It has a solution for every game (Nash 1951).
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    shape = reward.shape
    profiles = np.arange(reward.size).reshape(shape)
    gains = []
    rows = []
    columns = []
    count = 0
    for player, loss in enumerate(losses):
        n = shape[player]
        recommended = np.moveaxis(profiles, player, 0).reshape(n, -1)
        cost = np.moveaxis(loss, player, 0).reshape(n, -1)
        for b in range(n):
            gain = cost - cost[b]
            row = np.full(n, count + b) if coarse else count + b * n + np.arange(n)
            keep = gain != 0
            gains.append(gain[keep])
            rows.append(np.broadcast_to(row[:, None], gain.shape)[keep])
            columns.append(recommended[keep])
        count += n if coarse else n * n
    constraints: Any = coo_array(  # linprog takes sparse arrays, but its stubs do not
        (np.concatenate(gains), (np.concatenate(rows), np.concatenate(columns))), shape=(count, reward.size)
    ).tocsr()
    total: Any = coo_array(np.ones((1, reward.size)))
    spread = float(np.ptp(reward)) or 1.0
    for presolve in (True, False):  # which adds rows up, and of tiny differences can find that there is no solution
        solution = linprog(
            -(reward.ravel() - reward.max()) / spread,  # in [0, 1], as the solver's tolerances are absolute
            A_ub=constraints,
            b_ub=np.zeros(count),
            A_eq=total,
            b_eq=[1.0],
            method="highs",
            options={
                "presolve": presolve,
                "primal_feasibility_tolerance": 1e-10,
                "dual_feasibility_tolerance": 1e-10,
            },
        )
        if solution.x is not None:
            break
    else:
        raise TreeCalError(f"HiGHS found no equilibrium: {solution.message.strip()}")
    joint = np.maximum(np.reshape(solution.x, shape), 0)
    joint /= joint.sum()
    gain_of = external_gain if coarse else swap_gain
    worst = max(gain_of(deviations(loss, joint, player=i)) for i, loss in enumerate(losses))
    if not worst <= GAP:
        raise TreeCalError(f"the equilibrium has a gap of {worst:.3g} of a player's range, expected at most {GAP:g}.")
    return joint
