"""A client of `treecal serve`: forecasts go out with an id, corrected ones come back, outcomes follow later.

`Client` is for threads, `AsyncClient` for event loops. Neither holds up a model's answer when the server is away. Both
are wrapped for scikit-learn in `treecal.client.sklearn` and for river in `treecal.client.river`.
"""

from treecal._optional import require

require("httpcore", extra="client", what="treecal.client")
require("msgspec", extra="client", what="treecal.client")
from treecal.client._async_client import AsyncClient
from treecal.client._client import Client
from treecal.client._replies import Answer, Receipt
from treecal.client._spool import SpoolCounts

__all__ = ["Answer", "AsyncClient", "Client", "Receipt", "SpoolCounts"]
