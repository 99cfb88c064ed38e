"""The vocabulary: frozen, typed values of an organization. No I/O; imports nothing of ours."""
