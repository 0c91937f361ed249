"""Without the other library, an error says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["river", "sklearn"])
def test_missing_library(module: str) -> None:
    script = f"import sys; sys.modules['{module}'] = None; import treecal.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode
    assert "UnsupportedError" in done.stderr
    assert "Hint: pip install " in done.stderr
    assert f"(the extra {module})." in done.stderr


def test_the_package_itself_imports_neither() -> None:
    script = "import sys, treecal.integrations; print({'river', 'sklearn'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "set()"
