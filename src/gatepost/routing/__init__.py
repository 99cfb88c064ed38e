"""Pure decisions: facts in, a decision with its reasons out. No sockets, no clock (SPEC C13)."""
