"""The load of the server: a process that serves, a client that asks, and what is measured between them."""
