"""Correct the probabilities of a KServe model: mix `Corrected` into it.

`class Rain(Corrected, kserve.Model)` with a `predict` that returns `{"predictions": [[0.3, 0.7], ...]}` answers with
corrected ones and their ids. Ids are made from the request's, so that a request that is sent again opens no new
rounds. If the server is away, the model's own are returned at once, and delivered later if there is a spool, a file for
each process.
"""

from __future__ import annotations

import os
from typing import Any

from treecal.client import AsyncClient


class Corrected:
    """The last step of a model: its forecasts go to a treecal server, and corrected ones come back."""

    stream = os.environ.get("TREECAL_STREAM", "rain")
    client: AsyncClient | None = None

    async def postprocess(
        self, result: dict[str, Any], headers: dict[str, str] | None = None, *_: Any
    ) -> dict[str, Any]:
        """Replace the predictions by corrected ones, and add their ids."""
        if self.client is None:  # in the loop that answers requests
            url, spool = os.environ.get("TREECAL_URL", "http://127.0.0.1:8000"), os.environ.get("TREECAL_SPOOL")
            self.client = AsyncClient(url, token=os.environ.get("TREECAL_TOKEN"), spool=spool)
        rows, request = result["predictions"], (headers or {}).get("x-request-id")
        ids = [f"{request}-{row}" for row in range(len(rows))] if request else None
        answers = await self.client.forecast_many(self.stream, rows, ids=ids, timeout=0.2)
        return {
            **result,
            "predictions": [answer.forecast for answer in answers],
            "ids": [answer.id for answer in answers],
        }


if __name__ == "__main__":
    import kserve

    class Rain(Corrected, kserve.Model):
        """A model that always says 30 %."""

        def predict(self, payload: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
            """Return a row of probabilities for each instance."""
            return {"predictions": [[0.7, 0.3] for _ in payload["instances"]]}

    model = Rain("rain")
    model.ready = True
    kserve.ModelServer().start([model])
