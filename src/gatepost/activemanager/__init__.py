"""Which server holds the active copy of each database, and how front ends learn of a change."""
