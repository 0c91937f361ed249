"""What goes over the wire: the bodies of requests and answers, as `msgspec` reads and writes them.

A body is strict: an unknown field is refused, so that a misspelt one is not taken for its default. The schemas of the
OpenAPI document are made from these classes, and their docstrings are its descriptions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from treecal.late import Arrival as Arrival

MOST_ROWS = 10_000
"""Forecasts or outcomes in one request."""
FAR = 1e11
"""Seconds from 1970 to the year 5138; who sends a later time means milliseconds."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"

Name = Annotated[str, Meta(pattern=NAME, description="Letters, digits, dots, underscores and hyphens; 128 at most.")]
Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]+\Z",
        description="A name for the round, made by the client: 1 to 200 characters, in one line.",
    ),
]
Limit = Annotated[int, Meta(ge=1, le=10_000_000)]
Days = Annotated[int, Meta(ge=1, le=100_000)]
TagNames = Annotated[list[Name], Meta(max_length=16)]
Tags = dict[str, Annotated[str, Meta(max_length=200)]]
Numbers = Annotated[list[float], Meta(max_length=1000)]
Point = Numbers | Annotated[dict[str, float | str | Numbers], Meta(max_length=1000)]
"""A point of the set: numbers in order, or by the names of the classes.

On a `Cdf`, quantiles by level, as {"q10": 80, "q90": 200}; {"members": [...]}; or {"mean": 5, "sd": 2}.
"""
Outcome = int | float | str | Numbers
"""A class, by its index or name; or a point of the set; on a `Cdf`, a number."""


class Strict(Struct, forbid_unknown_fields=True, frozen=True):
    """What is sent to the server: a field that is not known is refused."""


class Part(Strict, frozen=True):
    """A corrector or forecaster by its registered name, with options for its constructor."""

    name: str
    options: dict[str, bool | int | float | str | list[Any] | dict[str, Any] | None] = {}


class Watch(Strict, frozen=True):
    """When to raise an alarm: at a false one with probability `alpha` ever, or one in `arl` rounds on average."""

    alpha: float = 0.05
    arl: float | None = None


class Shape(Strict, frozen=True):
    """A set of outcomes by its name, such as `Box`, with its arguments."""

    name: str
    options: dict[str, bool | int | float | list[float] | None] = {}


class NewStream(Strict, frozen=True, omit_defaults=True):
    """A stream to create. One of `classes` and `set`; at most one of `corrector` and `forecaster`.

    With neither, the model's forecasts are announced as they are: kept, scored and watched.
    """

    name: Name
    classes: Annotated[list[str], Meta(min_length=2, max_length=1000)] | None = None
    set: Shape | None = None
    corrector: Part | None = None
    gate: bool = False
    """Whether the corrector acts only once there is evidence that it helps."""
    forecaster: Part | None = None
    monitor: Watch | None = Watch()
    """Of the model's forecasts and of those announced. What a stream forecasts by itself is not watched."""
    tags: TagNames = []
    """Names of the tags that forecasts may have."""
    group: TagNames = []
    """Tags whose values tell a corrector with groups, and the monitor, which group a round is of."""
    limit: Limit | None = None
    """The most rounds that may await their outcomes: beyond it the oldest is void."""
    keep: Days | None = None
    """Days for which rounds are kept, whole ones in UTC: then they are deleted. Without it, those of the server."""
    revises: bool = False
    """Whether another forecast under an id that awaits its outcome revises it: then it is watched at once. Only where
    the model's forecasts are announced as they are."""


class StreamChange(Strict, frozen=True):
    """Settings of a stream to change, and no others: what is left out stays as it is.

    With `corrector` or `gate`, also the same again, a new corrector learns from the stream's log before it announces.
    """

    corrector: Part | UnsetType | None = UNSET
    gate: bool | UnsetType = UNSET
    monitor: Watch | UnsetType | None = UNSET
    tags: TagNames | UnsetType = UNSET
    limit: Limit | UnsetType | None = UNSET
    keep: Days | UnsetType | None = UNSET

    @property
    def relearn(self) -> bool:
        """Whether a new corrector is to learn."""
        return self.corrector is not UNSET or self.gate is not UNSET

    def of(self, config: NewStream) -> NewStream:
        """Return settings as they are changed."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}
        return structs.replace(config, **given)


class Deleted(Struct, frozen=True):
    """How many forecasts were deleted, with all that was known of them."""

    forecasts: int


class NewForecast(Strict, frozen=True):
    """A forecast to announce: the model's `p`, or none where the stream forecasts by itself."""

    id: Id
    p: Point | None = None
    tags: Tags = {}
    due: float | None = None
    """The last moment at which the outcome counts, in seconds since 1970."""
    used: bool = False
    """Whether the model's forecast was used already, as it is: it is then what was announced."""


class NewForecasts(Strict, frozen=True):
    """Forecasts to announce, in order; all of them or none."""

    forecasts: Annotated[list[NewForecast], Meta(min_length=1, max_length=MOST_ROWS)]


class Announced(Struct, frozen=True, omit_defaults=True):
    """What was announced."""

    id: str
    round: int
    """The number of the forecast in its stream, from 1."""
    forecast: list[float] | dict[str, float]
    """The forecast to use, like the model's: a probability for each class, in order or by name."""
    state: str
    """A hash of all that the stream had recorded before."""
    points: list[list[float]] | None = None
    """Where it is a distribution over several points: these. `forecast` is their mean."""
    weights: list[float] | None = None
    quantiles: dict[str, float] | None = None
    """On a `Cdf`, of the forecast to use: by level, from q5 to q95. `forecast` is its values at the thresholds."""
    action: str | int | dict[str, str | int] | None = None
    """Where the stream has losses: the action that the forecast calls for, of several decisions by their names."""
    actions: dict[str, Any] | None = None
    """The weight of each action that is advised, where there are several; of several decisions by their names."""


class Announcements(Struct, frozen=True):
    """What was announced, in the order of the request."""

    forecasts: list[Announced]


class NewOutcome(Strict, frozen=True):
    """The outcome of a forecast."""

    stream: Name
    id: Id
    outcome: Outcome
    amend: bool = False
    """Whether it is kept beside an earlier one, which stays what was learned and scored."""


class NewOutcomes(Strict, frozen=True):
    """Outcomes, learned in order.

    Many are learned in parts, once all are valid. Sent again after a break, those that were learned are `replayed`.
    """

    outcomes: Annotated[list[NewOutcome], Meta(min_length=1, max_length=MOST_ROWS)]


class Settled(Struct, frozen=True):
    """What became of an outcome.

    learned. replayed: the round has it already. amended: kept beside the first one. late: it arrived after it was due,
    or the round is void; it is kept and not learned. conflict: the round has another one. unknown: there is no such id.
    """

    stream: str
    id: str
    status: Arrival


class Settlements(Struct, frozen=True):
    """What became of the outcomes, in the order of the request, and how many of each."""

    outcomes: list[Settled]
    counts: dict[str, int]


class Counts(Struct, frozen=True):
    """Rounds of a stream: opened, learned, void or late, and those that await their outcomes; and amendments.

    Those that were `deleted` stay in all other counts.
    """

    forecasts: int = 0
    learned: int = 0
    late: int = 0
    void: int = 0
    pending: int = 0
    overdue: int = 0
    amended: int = 0
    deleted: int = 0


class Alarm(Struct, frozen=True):
    """An alarm of a monitor: `of` is what it watches, the model's forecasts or those announced.

    `round` and `onset` count outcomes in order of arrival, from the last reset on; `since` is when that of the onset
    arrived.
    """

    stream: str
    of: Literal["model", "announced"]
    at: float
    round: int
    onset: int
    since: float
    kind: str
    where: str | int | float | None
    direction: str
    size: float
    gap: float
    e_value: float
    group: str | None
    words: str


class Evidence(Struct, frozen=True):
    """Where a monitor stands: an alarm is raised when `value` reaches `threshold`."""

    value: float
    peak: float
    threshold: float
    alarm: Alarm | None


class Mark(Struct, frozen=True):
    """A point of the curves: after so many outcomes, errors per round, the guarantee on that announced, evidence."""

    rounds: int
    at: float
    model: float | None
    announced: float | None
    guarantee: float | None
    model_evidence: float | None
    announced_evidence: float | None


class LeadTime(Struct, frozen=True):
    """Forecasts from `least` to `below` seconds before their outcomes; those of rounds that were revised."""

    least: float
    below: float
    forecasts: int
    brier: float
    too_sure: float | None


class Stream(Struct, frozen=True):
    """A stream: how it was made, and how it stands."""

    name: str
    config: NewStream
    created: float
    archived: float | None
    counts: Counts
    state: str
    played: str
    """The corrector or forecaster with all its arguments."""
    verdict: dict[str, Any] | None
    """Of the forecasts announced: is it chance, how far off are they, and what to do."""
    model_verdict: dict[str, Any] | None
    """The same, of the model's."""
    monitors: dict[str, Evidence]
    """By what they watch: `model`, `announced`."""
    last: float | None
    """When the last forecast or outcome arrived."""
    leads: list[LeadTime] = []
    """Where forecasts are revised: how good they were, by how long before the outcome."""


class Streams(Struct, frozen=True):
    """A page of streams, in the order of their names; `next` is the `after` of the next page."""

    streams: list[Stream]
    next: str | None


class Waiting(Struct, frozen=True):
    """A round that awaits its outcome."""

    id: str
    round: int
    at: float
    due: float | None
    overdue: bool
    forecast: list[float]
    tags: Tags
    quantiles: dict[str, float] | None = None
    """Of a forecast of a number, by level."""


class Pending(Struct, frozen=True):
    """A page of rounds that await their outcomes, the oldest first; `next` is the `after` of the next page."""

    pending: list[Waiting]
    next: int | None


class Amendment(Struct, frozen=True):
    """An outcome that arrived for a closed round: kept beside the first, or the first of a void one."""

    at: float
    outcome: Outcome


class Record(Struct, frozen=True):
    """All that is known of a round."""

    id: str
    round: int
    at: float
    model: list[float] | None
    forecast: list[float]
    tags: Tags
    due: float | None
    state: str
    status: Literal["pending", "learned", "late", "void"]
    outcome: Outcome | None
    settled: float | None
    amendments: list[Amendment]
    used: bool
    """Whether the model's forecast was used as it is."""


class Change(Struct, frozen=True):
    """What correction changed: squared errors, of classes the Brier score, of what is announced less the model's.

    It is the mean over the rounds, each with itself, and its interval: far narrower than those of the two scores.
    """

    value: float
    low: float
    high: float
    level: float


class Fan(Struct, frozen=True):
    """Forecasts of numbers in the order of their outcomes: when these arrived, what they were, quantiles by level."""

    at: list[float]
    outcomes: list[float]
    quantiles: dict[str, list[float]]


class Scores(Struct, frozen=True):
    """Errors, reliability and scores, as `treecal audit --json` has them, of some rounds in order of their outcomes.

    `groups` is filled where `by` was given: each has `by`, the value of the tag or the start of the window.
    """

    stream: str
    rounds: int
    """Rounds read."""
    of: int
    """Rounds with outcomes in all."""
    model: dict[str, Any] | None
    announced: dict[str, Any] | None
    groups: list[dict[str, Any]]
    change: Change | None
    """Of a stream with a corrector, from two rounds on."""
    fan: Fan | None = None
    """Of numbers: the latest forecasts announced, beside their outcomes."""


class Curve(Struct, frozen=True):
    """The course of a stream: about ten marks a decade of rounds, and where it stands."""

    stream: str
    norm: str
    error: str
    """What the errors are."""
    marks: list[Mark]


class Alarms(Struct, frozen=True):
    """Alarms, the latest first."""

    alarms: list[Alarm]


class Webhook(Struct, frozen=True):
    """A receiver of alarms. The counts and times are since the server started."""

    name: str
    url: str | None
    """Without its path; null where it is not configured any more, and what it is owed waits."""
    streams: list[str]
    """The names of streams of which it gets the alarms; `*` stands for any letters."""
    pending: int
    """Alarms that it has not taken yet."""
    delivered: int = 0
    failed: int = 0
    """Attempts that it did not take."""
    last: float | None = None
    """When it took an alarm last."""
    problem: str | None = None
    """What went wrong since then."""


class Webhooks(Struct, frozen=True):
    """Receivers of alarms."""

    webhooks: list[Webhook]


class Problem(Struct, frozen=True, omit_defaults=True):
    """What was wrong, where, and what would be right."""

    code: str
    message: str
    hint: str | None = None
    at: str | None = None


class Failure(Struct, frozen=True):
    """Every error of every route."""

    error: Problem
