"""Mail between servers (SPEC T): received, kept on disk, routed, and sent over the servers that are up."""
