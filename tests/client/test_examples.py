"""The examples for KServe and Ray Serve, with small stand-ins for what they use of these: neither is installed."""

from __future__ import annotations

import asyncio
import inspect
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.client.world import Server

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        found.books.streams["rain"] = {"name": "rain", "classes": ["no", "yes"]}
        yield found


class Model:
    """KServe's base class as far as it matters here: predict, then postprocess, awaited if it is a coroutine."""

    def __init__(self, name: str) -> None:
        self.name, self.ready = name, False

    async def __call__(self, body: Any, headers: dict[str, str]) -> Any:
        result = self.predict(body, headers)  # type: ignore[attr-defined]
        assert inspect.iscoroutinefunction(self.postprocess)  # type: ignore[attr-defined]
        return await self.postprocess(result, headers)  # type: ignore[attr-defined]


def test_kserve(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    kserve: Any = ModuleType("kserve")
    kserve.Model, kserve.ModelServer = Model, lambda: SimpleNamespace(start=started.extend)
    monkeypatch.setitem(sys.modules, "kserve", kserve)
    monkeypatch.setenv("TREECAL_URL", server.url)
    runpy.run_path(str(EXAMPLES / "kserve_postprocessor.py"), run_name="__main__")
    (model,) = started
    assert model.ready

    async def main() -> Any:
        try:
            first = await model({"instances": [1, 2]}, {"x-request-id": "r"})
            again = await model({"instances": [1, 2]}, {"x-request-id": "r"})
            assert first == again
            assert len((await model({"instances": [1]}, {}))["ids"]) == 1
            return first
        finally:
            await model.client.close()

    model.client = None
    patient(monkeypatch)
    assert asyncio.run(main()) == {"predictions": [[0.3, 0.7]] * 2, "ids": ["r-0", "r-1"]}
    assert len(server.books.forecasts) == 3


def test_ray_serve(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deployment:
        """What `serve.deployment` makes: `bind` keeps the arguments."""

        def __init__(self, kind: type) -> None:
            self.kind = kind

        def bind(self, *args: Any) -> Any:
            return self.kind, args

    ray: Any = ModuleType("ray")
    ray.serve = SimpleNamespace(deployment=Deployment)
    monkeypatch.setitem(sys.modules, "ray", ray)
    example = runpy.run_path(str(EXAMPLES / "ray_serve_postprocessor.py"))
    kind, ((rain, nothing), url, stream) = example["build"]({"url": server.url})
    assert (nothing, stream) == ((), "rain")

    async def remote(features: Any) -> Any:
        return rain()(features)

    async def main() -> Any:
        corrected = kind(SimpleNamespace(remote=remote), url, stream)
        try:

            async def json() -> Any:
                return {"id": "a", "features": [1, 2]}

            return await corrected(SimpleNamespace(json=json))
        finally:
            await corrected.client.close()

    patient(monkeypatch)
    assert asyncio.run(main()) == {"id": "a", "probabilities": [0.3, 0.7], "corrected": True}


@pytest.mark.parametrize("name", ["kserve_postprocessor", "ray_serve_postprocessor"])
def test_they_are_imported_without_the_other_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("kserve", "ray"):
        monkeypatch.setitem(sys.modules, package, None)
    assert runpy.run_path(str(EXAMPLES / f"{name}.py"))["Corrected"]


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for answers, however busy the machine is."""
    from treecal.client import AsyncClient

    for method in ("forecast", "forecast_many"):
        real = getattr(AsyncClient, method)

        async def slow(self: Any, *args: Any, real: Any = real, **kwargs: Any) -> Any:
            return await real(self, *args, **{**kwargs, "timeout": 20.0})

        monkeypatch.setattr(AsyncClient, method, slow)
