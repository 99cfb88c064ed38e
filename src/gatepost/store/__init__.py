"""What the embedded stores share: SQLite files that several processes write and many watch."""
