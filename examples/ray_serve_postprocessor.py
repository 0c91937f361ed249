"""Correct the probabilities of a Ray Serve deployment: `serve run examples.ray_serve_postprocessor:build`.

`Corrected` is a deployment in front of the model's. It takes `{"id": ..., "features": ...}`, asks the model, and
answers with corrected probabilities; with the model's own, if the server is away. With a spool these are delivered
later; each replica is a process of its own and needs its own file.
"""

from __future__ import annotations

from typing import Any

from treecal.client import AsyncClient


class Corrected:
    """Asks a model, and a treecal server to correct its forecast."""

    def __init__(self, model: Any, url: str, stream: str, spool: str | None = None) -> None:
        self.model, self.stream = model, stream
        self.client = AsyncClient(url, spool=spool)

    async def __call__(self, request: Any) -> dict[str, Any]:
        """Answer a request over HTTP."""
        asked = await request.json()
        answer = await self.client.forecast(self.stream, await self.model.remote(asked["features"]), id=asked.get("id"))
        return {"id": answer.id, "probabilities": answer.forecast, "corrected": answer.corrected}


class Rain:
    """A model that always says 30 %."""

    def __call__(self, features: Any) -> list[float]:
        """Return a probability for each class."""
        return [0.7, 0.3]


def build(args: dict[str, str]) -> Any:
    """Return the application; `url=...` and `stream=...` are its arguments."""
    from ray import serve

    url, stream = args.get("url", "http://127.0.0.1:8000"), args.get("stream", "rain")
    return serve.deployment(Corrected).bind(serve.deployment(Rain).bind(), url, stream)
