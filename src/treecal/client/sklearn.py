"""scikit-learn: a classifier whose probabilities are corrected by a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._optional import require
from treecal.client._client import BATCH, Client
from treecal.client._replies import Answer, Receipt
from treecal.exceptions import OutcomeError, ParameterError
from treecal.integrations import checked_label

require("sklearn", extra="sklearn", what="treecal.client.sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from treecal.integrations.sklearn import Wrapper


class ServedClassifier(Wrapper, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped
    """A classifier whose probabilities are corrected by a treecal server, and recorded there.

    `predict_proba` announces a forecast for each row, under an id, and returns the corrected probabilities; the model's
    own, if the server is away. Each call opens new rounds, so call it once for each case. `outcomes(ids, y)` settles
    them when the labels are known. The classes of the stream are those of the model, in their order:
    `client.create("orders", classes=model.classes_, corrector="auto")`.

    Parameters
    ----------
    estimator
        A classifier with `predict_proba`; a fitted one needs no `fit`.
    client
        A `treecal.client.Client`. It is shared by copies.
    stream
        The name of the stream.
    id_column
        The column of a table `X` that has the ids; the model does not see it. By default ids are random, and `forecast`
        returns them.
    timeout
        Seconds to wait for the corrections of a table.

    Attributes
    ----------
    classes_
        The labels, in the order of the stream's classes.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from treecal.client import Client
    >>> model = LogisticRegression().fit([[-1.0], [1.0]], ["no", "yes"])
    >>> with Client("http://127.0.0.1:9") as client:  # nobody listens there: these are the model's own
    ...     served = ServedClassifier(model, client=client, stream="orders")
    ...     [answer] = served.forecast([[0.0]], ids=["order 17"])
    >>> answer.forecast, answer.corrected
    ([0.5, 0.5], False)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        client: Client | None = None,
        stream: str = "",
        id_column: str | None = None,
        timeout: float = BATCH,
    ) -> None:
        self.estimator = estimator
        self.client = client
        self.stream = stream
        self.id_column = id_column
        self.timeout = timeout

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit a copy of the model. Nothing is sent.

        Parameters
        ----------
        X
            Rows of features.
        y
            Their labels.
        """
        self.estimator_ = clone(self.estimator).fit(self._split(X)[0], y)
        return self

    def forecast(self, X: Any, ids: Iterable[object] | None = None) -> list[Answer]:
        """Announce a forecast for each row, and return the answers: corrected probabilities and ids.

        Parameters
        ----------
        X
            Rows of features.
        ids
            Their ids, in place of the column's or of random ones.
        """
        check_is_fitted(self)
        if self.client is None:
            raise ParameterError.expected("client", None, "a treecal.client.Client")
        features, named = self._split(X)
        forecasts = self._model.predict_proba(features)
        names = named if ids is None else [_id(each) for each in ids]
        return self.client.forecast_many(self.stream, forecasts, ids=names, timeout=self.timeout)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Announce a forecast for each row, and return the corrected probabilities.

        Parameters
        ----------
        X
            Rows of features, with the column of ids if there is one.
        """
        return np.array([answer.forecast for answer in self.forecast(X)], np.float64).reshape(-1, len(self.classes_))

    def predict(self, X: Any) -> Any:
        """Announce a forecast for each row, and return its most likely class.

        Parameters
        ----------
        X
            Rows of features, with the column of ids if there is one.
        """
        forecasts = self.predict_proba(X)
        return self.classes_[forecasts.argmax(axis=1)]

    def outcomes(self, ids: Iterable[object], y: Iterable[object]) -> list[Receipt]:
        """Settle rounds, and return what became of each.

        Parameters
        ----------
        ids
            The ids of the forecasts.
        y
            Their labels.
        """
        check_is_fitted(self)
        if self.client is None:
            raise ParameterError.expected("client", None, "a treecal.client.Client")
        names, labels = [_id(each) for each in ids], np.asarray(y).tolist()
        if len(names) != len(labels):
            raise ParameterError(f"there are {len(names)} ids and {len(labels)} labels, expected as many.")
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        for row, label in enumerate(labels):
            if checked_label(label, f"y[{row}]") not in places:
                raise OutcomeError(f"y[{row}] is {label!r}, expected one of the classes {list(places)}.")
        return self.client.outcomes(
            [(self.stream, name, places[label]) for name, label in zip(names, labels, strict=True)]
        )

    def _split(self, X: Any) -> tuple[Any, list[str] | None]:
        """Return what the model sees, and the ids."""
        if self.id_column is None:
            return X, None
        columns = list(getattr(X, "columns", ()))
        if self.id_column not in columns:
            raise ParameterError(f"X has no column {self.id_column!r}, which is to hold the ids.")
        return X[[name for name in columns if name != self.id_column]], [_id(each) for each in X[self.id_column]]

    @property
    def classes_(self) -> Any:
        """The labels."""
        return self._model.classes_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self._model, "classes_")


def _id(given: object) -> str:
    return str(checked_label(given, "an id"))
