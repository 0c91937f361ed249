"""Draw the pictures of docs/gallery.md by the code on the page.

Run it from anywhere; it takes some seconds: python docs/gallery.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    """Run the page where its pictures belong."""
    os.chdir(HERE)
    page = (HERE / "gallery.md").read_text("utf-8")
    namespace = dict[str, Any]()
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S):
        exec(code, namespace)


if __name__ == "__main__":
    main()
