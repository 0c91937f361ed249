"""From what stands in a row to a point of the set, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.cli._options import Outcomes
from treecal.cli._rows import Bare
from treecal.cli._terminal import printable
from treecal.exceptions import OutcomeError
from treecal.geometry import Simplex


class Coder:
    """Reads outcomes and probabilities, and writes points.

    Classes are kept in alphabetical order, whatever the order they are named in: so a snapshot resumed under
    `--classes b,a` is that of `--classes a,b`.

    Parameters
    ----------
    outcomes
        What outcomes are.

    Examples
    --------
    >>> coder = Coder(Outcomes(classes="sun,rain"))
    >>> coder.read("sun")
    array([0., 1.])
    >>> coder.read([0.75, 0.25])  # in the order of --classes
    array([0.25, 0.75])
    >>> coder.write(np.array([0.25, 0.75]))
    {'sun': 0.75, 'rain': 0.25}
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self.space, self.names = outcomes.space(), outcomes.names
        labels = self.names or (map(str, range(self.space.dim)) if isinstance(self.space, Simplex) else ())
        kept = {label: place for place, label in enumerate(sorted(self.names or ()))}
        self._places = {label: kept.get(label, place) for place, label in enumerate(labels)}

    def read(self, value: Any, columns: tuple[str, ...] = ()) -> Array:
        """Return the outcome in a row: a class by its name or number, a vector, or an object that holds one.

        Parameters
        ----------
        value
            A JSON value, or a row of a table by column.
        columns
            Where it stands in an object: under one name, or its coordinates under several. By default under "outcome",
            or under the only name there is.
        """
        if isinstance(value, dict):
            value = pick(value, columns or self._default(value))
        if not self._places or isinstance(value, bool):
            return self.point(value)
        if isinstance(value, float) and value.is_integer():  # a column of whole numbers with gaps comes as floats
            value = int(value)
        return self._one_hot(value) if isinstance(value, str | int | float) else self.point(value)

    def point(self, value: Any) -> Array:
        """Return a vector given by a list, in the order of the classes, or by an object with one entry a class."""
        if isinstance(value, dict) and self._places:
            if value.keys() != self._places.keys():
                raise OutcomeError(f"it has entries for {_listed(value)}, expected {_listed(self._places)}.")
            value = [value[label] for label in self._places]
        if self.space.dim == 1 and not isinstance(value, list):
            value = [value]
        if not isinstance(value, list):
            what = f"one of {_listed(self._places)}" if self._places else f"{self.space.dim} numbers"
            raise OutcomeError(f"it is {_clipped(value)}, expected {what}.")
        if len(value) != self.space.dim:
            raise OutcomeError(f"it has {len(value)} numbers, expected {self.space.dim}.")
        vector = np.empty(self.space.dim)
        vector[list(self._places.values()) or slice(None)] = [as_number(entry) for entry in value]
        return vector

    def _default(self, row: dict[str, Any]) -> tuple[str, ...]:
        if "outcome" in row or len(row) != 1:
            return ("outcome",)
        return tuple(row)

    def _one_hot(self, value: str | float) -> Array:
        label = str(value).strip()
        if label not in self._places:
            if isinstance(value, Bare):
                raise OutcomeError(
                    f"{_clipped(value)} is neither JSON nor one of the classes, {_listed(self._places)}."
                )
            numbers = self.names is not None and label.isdigit()
            raise OutcomeError(
                f"there is no class {_clipped(label)}, expected one of {_listed(self._places)}.",
                hint=f"--dim {self.space.dim} in place of --classes takes numbers from 0." if numbers else None,
            )
        outcome = np.zeros(self.space.dim)
        outcome[self._places[label]] = 1.0
        return outcome

    def write(self, vector: Array) -> dict[str, float] | list[float]:
        """Return the vector as JSON: by class, where classes have names."""
        if self.names is None:
            return list(vector.tolist())
        return {name: float(vector[place]) for name, place in self._places.items()}


def pick(row: dict[str, Any], columns: tuple[str, ...]) -> Any:
    """Return what stands under one name; or the list of what stands under several.

    Examples
    --------
    >>> pick({"x": 1, "y": 2}, ("x", "y")), pick({"x": 1, "y": 2}, ("x",))
    ([1, 2], 1)
    """
    missing = [name for name in columns if name not in row]
    if missing:
        raise OutcomeError(f"there is no column {_listed(missing)} among {_listed(row)}.")
    found = [row[name] for name in columns]
    if any(entry is None or entry == "" for entry in found):
        raise OutcomeError(f"the column {_listed(columns)} is empty.")
    return found[0] if len(columns) == 1 else found


def as_number(entry: Any) -> float:
    """Return a number that is written as one, or as text.

    Examples
    --------
    >>> as_number("0.25")
    0.25
    """
    if isinstance(entry, int | float | str) and not isinstance(entry, bool):
        try:
            number = float(entry)
        except (ValueError, OverflowError):
            pass
        else:
            if np.isfinite(number):
                return number
            raise OutcomeError(f"it holds {_clipped(entry)}, expected finite numbers.")
    raise OutcomeError(f"it holds {_clipped(entry)}, expected a number.")


def _clipped(value: Any) -> str:
    text = repr(str(value) if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _listed(names: Any) -> str:
    shown = [printable(name) for name in names]
    return ", ".join(shown[:10]) + f" and {len(shown) - 10} more" * (len(shown) > 10)
