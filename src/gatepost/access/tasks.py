"""Tasks, as `relay.tasks` starts them."""

from gatepost.relay.tasks import start

__all__ = ["start"]
