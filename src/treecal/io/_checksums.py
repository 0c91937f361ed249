"""Whether a Parquet file holds checksums of its pages, which Arrow can check and DuckDB does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_INTEGER = 0x15  # in Thrift's compact protocol: the field after the last one, of 32 bits


def has_checksums(path: Path, metadata: Any) -> bool:
    """Return whether a column of the first row group begins with a page that has a checksum."""
    if not metadata.num_row_groups:
        return False
    group = metadata.row_group(0)
    columns = [group.column(k) for k in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    with open(path, "rb") as file:
        for start in starts:
            file.seek(max(0, start))
            if _has_checksum(file.read(64)):
                return True
    return False


def _has_checksum(header: bytes) -> bool:
    """Return whether the header of a page has its fourth field: after the type and the two sizes."""
    at = 0
    for _ in range(3):
        if header[at : at + 1] != bytes([_INTEGER]):
            return False
        at += 1
        while header[at : at + 1] >= b"\x80":  # seven bits of the number, and more to come
            at += 1
        at += 1
    return header[at : at + 1] == bytes([_INTEGER])
