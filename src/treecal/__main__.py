"""`python -m treecal`: the command `treecal`."""

from __future__ import annotations

from treecal.cli import main

if __name__ == "__main__":
    main()
