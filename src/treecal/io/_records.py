"""How many records a text file has, counted apart from the reader of its cells, to check that none was lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_QUOTE, _LF, _CR, _BLANK = b'"\n\r '


def csv_count(blocks: Iterable[bytes], delimiter: str, *, blank_lines: bool) -> int | None:
    r"""Return the number of records in a CSV file, with its header, or None where quotes are not placed as they should.

    A record ends at a line break that is not between quotes. Blank lines are no records, unless `blank_lines` says so.

    Examples
    --------
    >>> csv_count([b'day,note\n\n1,"two\nlines"\n2,"a ""b"", c"'], ",", blank_lines=False)
    3
    >>> csv_count([b'day,note\n1,5" wide\n'], ",", blank_lines=False) is None
    True
    """
    records, inside, before, placed = 0, False, b"\n\n", True
    starts = [*delimiter.encode(), _LF, _BLANK, _QUOTE]
    for block in blocks:
        text = before[-2:] + block
        before = text
        if not placed:
            continue  # the rest is read nevertheless: whoever reads blocks checks them
        if not inside and b'"' not in block and (blank_lines or (b"\n\n" not in text and b"\n\r\n" not in text)):
            records += block.count(b"\n")
            continue
        letters = np.frombuffer(text, np.uint8)
        quotes = letters == _QUOTE
        quotes[:2] = False
        odd = (np.cumsum(quotes) + inside) % 2 == 1
        opening = np.flatnonzero(quotes & odd)
        last, one_before = letters[opening - 1], letters[opening - 2]
        placed = bool((np.isin(last, starts) & ((last != _BLANK) | np.isin(one_before, starts))).all())
        ends = (letters == _LF) & ~odd
        new = ends[2:]
        if not blank_lines:
            new = new & ~(ends[1:-1] | ((letters[1:-1] == _CR) & ends[:-2]))
        records += int(np.count_nonzero(new))
        inside = bool(odd[-1])
    if inside or not placed:
        return None
    return records + (not before.endswith(b"\n"))


def json_count(blocks: Iterable[bytes], names: Sequence[str]) -> tuple[int, int | None]:
    r"""Return the number of lines in a file, and how often the most frequent of these names is in it, in quotes.

    The second is None where characters are escaped, as names may be, too.

    Examples
    --------
    >>> json_count([b'{"p": 1}\n{"p": 0, "q": "p"}'], ["p"])
    (2, 3)
    """
    found = {f'"{name}"'.encode(): 0 for name in names}
    lines, escaped, rest = 0, False, b""
    for block in blocks:
        whole, _, rest = (rest + block).rpartition(b"\n")  # a name may lie across two blocks, but not across lines
        lines += block.count(b"\n")
        escaped = escaped or b"\\u" in block
        for name in found:
            found[name] += whole.count(name)
    for name in found:
        found[name] += rest.count(name)
    return lines + bool(rest), None if escaped else max(found.values(), default=0)
