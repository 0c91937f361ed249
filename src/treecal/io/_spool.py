"""Standard input as a file: an audit reads a log more than once, and a pipe can be read only once."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import BinaryIO

from treecal.exceptions import FileError
from treecal.io._duckdb import library
from treecal.io._text import Kind

_HEAD = 1 << 16
_ARROW_FILE, _ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"


def spool(stream: BinaryIO, folder: Path, name: str) -> tuple[Path, Kind]:
    """Write what a stream holds to a file in this folder; return the file, and its format, told from its first bytes.

    It may be CSV, JSON lines, both also gzipped, Parquet, or Arrow's own format, which is written as Parquet.
    """
    head = stream.read(_HEAD)
    if not head:
        raise FileError(f"{name} is empty.")
    path = folder / "input"
    if head.startswith((_ARROW_FILE, _ARROW_STREAM)):
        _write(path, head, stream)
        return _as_parquet(path, name, stream=head.startswith(_ARROW_STREAM)), "parquet"
    if head.startswith(b"PAR1"):
        _write(path, head, stream)
        return path, "parquet"
    gzipped = head.startswith(b"\x1f\x8b")
    text = _begin(head) if gzipped else head
    kind: Kind = "jsonl" if text.lstrip()[:1] in (b"{", b"[") else "csv"
    path = path.with_suffix(f".{kind}{'.gz' * gzipped}")
    _write(path, head, stream)
    return path, kind


def _write(path: Path, head: bytes, stream: BinaryIO) -> None:
    with path.open("wb") as file:
        file.write(head)
        shutil.copyfileobj(stream, file)


def _begin(head: bytes) -> bytes:
    """Return the beginning of a gzipped text; nothing where it is damaged, as its reader will say."""
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    except zlib.error:
        return b""


def _as_parquet(path: Path, name: str, *, stream: bool) -> Path:
    """Write a file of Arrow's format as Parquet, batch by batch."""
    arrow, ipc = library("pyarrow"), library("pyarrow.ipc")
    found = path.with_suffix(".parquet")
    try:
        with open(path, "rb") as file:
            reader = ipc.open_stream(file) if stream else ipc.open_file(file)
            with library("pyarrow.parquet").ParquetWriter(found, reader.schema) as writer:
                for batch in reader if stream else map(reader.get_batch, range(reader.num_record_batches)):
                    writer.write_batch(batch)
    except (arrow.ArrowException, OSError) as error:
        raise FileError(f"{name} cannot be read: {str(error).splitlines()[0]}.") from None
    path.unlink()
    return found
