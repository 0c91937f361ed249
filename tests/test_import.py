"""What `import treecal` costs."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "apsw",
    "cvxpy",
    "cyclopts",
    "duckdb",
    "httpcore",
    "httpcore",
    "jinja2",
    "matplotlib",
    "msgspec",
    "narwhals",
    "numba",
    "pandas",
    "polars",
    "psycopg",
    "pyarrow",
    "pyspark",
    "rich",
    "river",
    "safetensors",
    "scipy",
    "sklearn",
    "starlette",
    "torch",
    "uvicorn",
)


def modules_after(statement: str) -> set[str]:
    script = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    return set(json.loads(subprocess.check_output([sys.executable, "-c", script], text=True)))


def test_import_is_light() -> None:
    loaded = modules_after("import treecal")
    assert not [name for name in HEAVY if name in loaded]
    assert "treecal.forecasters._tree.treecal" in loaded


def test_a_heavy_module_would_be_seen() -> None:
    assert "scipy" in modules_after("import treecal, scipy.special")


def test_public_names_are_sorted_and_there() -> None:
    import treecal as tc

    assert list(tc.__all__) == sorted(tc.__all__)
    assert all(getattr(tc, name).__doc__ for name in tc.__all__)
