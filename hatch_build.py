"""What the build does besides packing: links and commands of the README work for readers of a package index, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

SITE = "https://treecal.github.io/treecal/"
SOURCE = "https://github.com/treecal/treecal/blob/main/"
BY_NAME = {
    '".[': '"treecal[',
    "`pip install .`": "`pip install treecal`",
    ", in a clone of this repository:": "; for `make` in a clone of the repository:",
}


def absolute(text: str) -> str:
    """Return the text with relative links to pages of the site, and of all else to its source."""

    def whole(link: re.Match[str]) -> str:
        path, anchor = link[1], link[2] or ""
        if not path.startswith("docs/"):
            return f"]({SOURCE}{path}{anchor})"
        return f"]({SITE}{re.sub(r'[.]md$', '.html', path.removeprefix('docs/'))}{anchor})"

    return re.sub(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)", whole, text)


class Readme(MetadataHookInterface):
    """The README as the description of the package, which is installed by its name."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set it."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        for here, there in BY_NAME.items():
            text = text.replace(here, there)
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text)}
