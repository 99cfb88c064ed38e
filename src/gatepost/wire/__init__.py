"""Bytes to typed messages and back: sans-I/O protocol machines. No sockets, no clock."""
