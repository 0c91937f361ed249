"""What the modules are given, checked without a look at the values, which are on the device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

import numpy as np
import torch
from torch import Tensor

from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.geometry import Simplex

P = ParamSpec("P")


def uncompiled(method: Callable[P, None]) -> Callable[P, None]:
    """Return a method that `torch.compile` leaves alone; what it takes is imported only if that is there already."""

    @wraps(method)
    def run(*args: P.args, **options: P.kwargs) -> None:
        plain = "torch._dynamo" not in sys.modules
        (method if plain else torch.compiler.disable(method))(*args, **options)

    return run


def class_names(classes: int | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes: their indices, if only their number is given."""
    if isinstance(classes, int):
        return tuple(map(str, range(whole_number("classes", classes, least=2))))
    names = tuple(map(str, classes))
    if isinstance(classes, str) or len(names) < 2 or len(set(names)) < len(names):
        raise ParameterError.expected("classes", classes, "the number of classes, 2 or more, or their distinct names")
    return names


def space_of(classes: int | Sequence[str]) -> Simplex:
    """Return the simplex of the classes, with their names if they have some."""
    names = class_names(classes)
    return Simplex(len(names)) if isinstance(classes, int) else Simplex(classes=names)


def valid_rows(p: Tensor, outcomes: Tensor) -> Tensor:
    """Return which rows of probabilities are valid, with a valid class: bad logits make a whole row of them NaN.

    Those are logits of which one is NaN or ∞, or of which all are −∞.
    """
    return (outcomes >= 0) & (outcomes < p.shape[1]) & ~torch.isnan(p[:, 0])


def read_logits(logits: Tensor, classes: int) -> Tensor:
    """Return logits as rows, `(n, classes)`."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        given = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise ParameterError(f"logits are {given}, expected a tensor of floats.")
    if logits.ndim < 2 or logits.shape[1] != classes:
        raise ParameterError(f"logits have shape {tuple(logits.shape)}, expected (n, {classes}).")
    return logits.detach() if logits.ndim == 2 else logits.detach().movedim(1, -1).reshape(-1, classes)


def read_outcomes(outcomes: Tensor, logits: Tensor) -> Tensor:
    """Return the class of each row of logits, `(n,)`, in memory of its own: what is checked is what is used."""
    shape = (logits.shape[0], *logits.shape[2:])
    if not isinstance(outcomes, Tensor) or outcomes.is_floating_point() or outcomes.dtype == torch.bool:
        given = outcomes.dtype if isinstance(outcomes, Tensor) else type(outcomes).__name__
        raise ParameterError(f"outcomes are {given}, expected a tensor of whole numbers, the classes.")
    if tuple(outcomes.shape) != shape:
        raise ParameterError(f"outcomes have shape {tuple(outcomes.shape)}, expected {shape}.")
    if outcomes.device != logits.device:
        raise ParameterError(f"outcomes are on {outcomes.device}, the logits on {logits.device}.")
    return outcomes.flatten().clone()


def as_tensors(state: Any) -> Any:
    """Return a state whose arrays are tensors."""
    if isinstance(state, dict):
        return {name: as_tensors(value) for name, value in state.items()}
    return torch.from_numpy(np.array(state)) if isinstance(state, np.ndarray) else state


def as_arrays(state: Any) -> Any:
    """Return the state that `as_tensors` was given."""
    if isinstance(state, dict):
        return {name: as_arrays(value) for name, value in state.items()}
    return state.cpu().numpy().copy() if isinstance(state, Tensor) else state
