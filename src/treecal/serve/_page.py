"""The page: files that are served as they are."""

from __future__ import annotations

import mimetypes
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING

from treecal.serve._answers import Response
from treecal.serve._refusals import Refusal

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load: its own files, and nothing from elsewhere."""


class Page:
    """The files of the page, read once.

    Parameters
    ----------
    folder
        Where they are; those of the package by default.
    """

    def __init__(self, folder: Traversable | None = None) -> None:
        self._files: dict[str, tuple[bytes, bytes, bytes]] = {}
        folder = resources.files(__package__) / "page" if folder is None else folder
        if folder.is_dir():
            self._read(folder, "")

    def _read(self, folder: Traversable, path: str) -> None:
        for each in folder.iterdir():
            name = f"{path}{each.name}"
            if each.is_dir():
                self._read(each, f"{name}/")
                continue
            content = each.read_bytes()
            ending = "." + each.name.rpartition(".")[2].lower()
            kind = _KINDS.get(ending) or mimetypes.types_map.get(ending, "application/octet-stream")
            self._files[name] = (content, kind.encode(), b'"%b"' % sha256(content).hexdigest()[:32].encode())

    def file(self, name: str, headers: dict[bytes, bytes]) -> Response:
        """Return a file, or that it has not changed, or refuse: only names of files that are there are known."""
        if (found := self._files.get(name)) is None:
            raise Refusal("not_found", "the page has no such file.", at="path")
        content, kind, tag = found
        more = ((b"etag", tag), (b"cache-control", b"no-cache"), (b"content-security-policy", POLICY))
        if tag in headers.get(b"if-none-match", b""):
            return Response(b"", 304, kind, more)
        return Response(content, 200, kind, more)
