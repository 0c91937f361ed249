"""river: a classifier whose probabilities are corrected by a server."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from typing import Any

from treecal._optional import require
from treecal.client._client import FORECAST, Client
from treecal.exceptions import OutcomeError, ParameterError
from treecal.integrations import checked_label

require("river", extra="river", what="treecal.client.river")
from river import base

from treecal.integrations.river import WrappedClassifier

_MOST_WAITING = 100_000


class ServedClassifier(WrappedClassifier):
    """A classifier whose probabilities are corrected by a treecal server, and recorded there.

    `predict_proba_one(x)` announces a forecast under an id, and returns the corrected probabilities; the classifier's
    own, if the server is away. `learn_one(x, y)` sends the outcome, and lets the classifier learn.

    Parameters
    ----------
    classifier
        Any river classifier with probabilities, or a pipeline that ends in one.
    client
        A `treecal.client.Client`. It is shared by copies.
    stream
        The name of the stream.
    classes
        All labels, in the order of the stream's classes.
    id_feature
        The feature of `x` that has the id; the classifier does not see it. By default ids are random, and an outcome
        goes to the oldest forecast for the same features that has none; the last 100,000 are remembered.
    timeout
        Seconds to wait for a correction.

    Examples
    --------
    >>> from river import dummy
    >>> from treecal.client import Client
    >>> with Client("http://127.0.0.1:9", timeout=1) as client:  # nobody listens there: these are the model's own
    ...     model = ServedClassifier(dummy.PriorClassifier(), client, "orders", ["no", "yes"], id_feature="order")
    ...     model.predict_proba_one({"order": 17, "price": 3.5})
    {'no': 0.5, 'yes': 0.5}
    """

    def __init__(
        self,
        classifier: base.Classifier,
        client: Client,
        stream: str,
        classes: Iterable[Hashable],
        id_feature: str | None = None,
        timeout: float = FORECAST,
    ) -> None:
        super().__init__(classifier)
        self.client, self.stream = client, stream
        self.classes, self.id_feature, self.timeout = list(classes), id_feature, timeout
        self._places = {checked_label(label): place for place, label in enumerate(self.classes)}
        if len(self._places) < max(len(self.classes), 2):
            raise ParameterError.expected("classes", self.classes, "two or more distinct labels")
        self._waiting: OrderedDict[Hashable, deque[str]] = OrderedDict()  # ids that were made, by features
        self._count = 0

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Announce a forecast, and return the corrected probability of each label.

        Parameters
        ----------
        x
            A dictionary of features, with the id if it is one of them.
        **kwargs
            Passed to the classifier.
        """
        features, name = self._split(x)
        key = None if name is not None else _key(features)
        given: dict[Any, float] = self.classifier.predict_proba_one(features, **kwargs)
        if stray := [label for label in given if label not in self._places]:
            raise OutcomeError(f"the classifier forecasts {stray[0]!r}, which is not one of the classes.")
        if not any(given.values()):  # it has not learned yet
            given = dict.fromkeys(self.classes, 1 / len(self.classes))
        p = [given.get(label, 0.0) for label in self.classes]
        answer = self.client.forecast(self.stream, p, id=name, timeout=self.timeout)
        if key is not None:
            self._remember(key, answer.id)
        return dict(zip(self.classes, map(float, answer.forecast), strict=True))

    def learn_one(self, x: dict[Any, Any], y: Any, **kwargs: Any) -> None:
        """Send the outcome of the forecast for these features, if there was one; and let the classifier learn.

        Parameters
        ----------
        x
            A dictionary of features, with the id if it is one of them.
        y
            A label.
        **kwargs
            Passed to the classifier.
        """
        if checked_label(y) not in self._places:
            raise OutcomeError(f"label {y!r} is not one of the classes {self.classes}.")
        features, name = self._split(x)
        key = None if name is not None else _key(features)
        if key in self._waiting:
            name = self._waiting[key][0]
        if name is not None:
            self.client.outcome(self.stream, name, self._places[y])
        if key in self._waiting:
            self._forget(key)
        self.classifier.learn_one(features, y, **kwargs)

    def _split(self, x: dict[Any, Any]) -> tuple[dict[Any, Any], str | None]:
        """Return what the classifier sees, and the id."""
        if self.id_feature is None:
            return x, None
        if self.id_feature not in x:
            raise ParameterError(f"x has no {self.id_feature!r}, which is to be the id.")
        name = str(checked_label(x[self.id_feature], f"x[{self.id_feature!r}]"))
        return {feature: value for feature, value in x.items() if feature != self.id_feature}, name

    def _remember(self, key: Hashable, name: str) -> None:
        self._waiting.setdefault(key, deque()).append(name)
        self._count += 1
        if self._count > _MOST_WAITING:
            self._forget(next(iter(self._waiting)))

    def _forget(self, key: Hashable) -> None:
        names = self._waiting[key]
        names.popleft()
        self._count -= 1
        if not names:
            del self._waiting[key]


def _key(features: dict[Any, Any]) -> Hashable:
    try:
        key: Hashable = frozenset(features.items())
        hash(key)
    except TypeError:
        raise ParameterError(
            "these features cannot be compared with others: a value is not hashable.",
            hint="name an id_feature.",
        ) from None
    return key
