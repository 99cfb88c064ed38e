"""The sources' figure as real processes on loopback addresses."""
