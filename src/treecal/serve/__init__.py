"""The server with the books: forecasts by id, outcomes when they come, alarms, and a page that shows it live."""

from treecal._optional import require

require("msgspec", extra="serve", what="the server")
