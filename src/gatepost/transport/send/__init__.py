"""Handing messages to the next server: connections, TLS, and what became of each recipient."""
