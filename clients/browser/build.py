"""Write the page that audits in the browser: one file, with all that it needs in it.

`python clients/browser/build.py audit.html`; `make docs` puts it on the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
RULE = ("table", "count", "verdict", "advice", "audit")
"""The parts of the audit, in order: one script, which a worker runs."""


def rule() -> str:
    """Return the audit as one script."""
    return "\n".join((HERE / f"{name}.js").read_text("utf-8") for name in RULE)


def page() -> str:
    """Return the page."""
    text = (HERE / "page.html").read_text("utf-8")
    for place, script in (("worker", rule()), ("page", (HERE / "page.js").read_text("utf-8"))):
        assert "</script" not in script
        text = text.replace(f"/* {place} */", script)
    return text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
