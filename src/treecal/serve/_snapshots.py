"""The state of a player as bytes: arrays by safetensors, the rest as JSON. Nothing in it is code."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from treecal.exceptions import SnapshotError
from treecal.state import VERSION, _flat, _nested


class OtherVersionError(SnapshotError):
    """The snapshot is whole, and of another version: the log has all that it says."""


def packed(state: dict[str, Any]) -> bytes:
    """Return a state as bytes, with their hash before them: the same for equal states."""
    from safetensors.numpy import save as pack

    flat = _flat(state)
    arrays = {key: np.ascontiguousarray(value) for key, value in flat.items() if isinstance(value, np.ndarray)}
    rest = {key: value for key, value in flat.items() if key not in arrays}
    content = pack(arrays, metadata={"treecal": json.dumps([VERSION, rest], sort_keys=True)})
    return hashlib.sha256(content).digest() + content


def unpacked(content: bytes) -> dict[str, Any]:
    """Return the state that `packed` was given, or raise unless the bytes are whole and of this version."""
    from safetensors.numpy import load as unpack

    digest, content = content[:32], content[32:]
    if hashlib.sha256(content).digest() != digest:
        raise SnapshotError("the snapshot is damaged: its SHA-256 does not match.")
    length = int.from_bytes(content[:8], "little")
    version, rest = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["treecal"])
    if version != VERSION:
        raise OtherVersionError(f"the snapshot has format version {version}, expected {VERSION}.")
    return _nested(rest, unpack(content))
