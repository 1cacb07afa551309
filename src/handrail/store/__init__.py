"""Sessions on disk: their events in one SQLite database, their artifacts beside it."""
