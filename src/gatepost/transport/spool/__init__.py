"""Messages on disk (SPEC T2): one SQLite file for envelopes and small contents, a file for each large content."""
