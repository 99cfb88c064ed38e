"""Users in a database, PostgreSQL or MariaDB: one query a question."""
