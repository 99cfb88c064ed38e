"""Shadow redundancy: no message is lost with the disk of one server (SPEC S)."""
