"""Running it: supervisor, workers, reload, drain."""
