"""All cmdlets."""

from __future__ import annotations

from functools import cache

from gatepost.shell.active_copy_cmdlets import active_copy_cmdlets
from gatepost.shell.cmdlet import Cmdlets
from gatepost.shell.database_cmdlets import database_cmdlets
from gatepost.shell.directory_cmdlets import directory_cmdlets
from gatepost.shell.mailbox_cmdlets import mailbox_cmdlets
from gatepost.shell.message_cmdlets import message_cmdlets
from gatepost.shell.objects import ALIASES, object_cmdlets
from gatepost.shell.queue_cmdlets import queue_cmdlets
from gatepost.shell.receive_connector_cmdlets import receive_connector_cmdlets
from gatepost.shell.resubmit_cmdlets import resubmit_cmdlets
from gatepost.shell.send_connector_cmdlets import send_connector_cmdlets
from gatepost.shell.server_cmdlets import server_cmdlets
from gatepost.shell.transport_cmdlets import ALIASES as TRANSPORT_ALIASES
from gatepost.shell.transport_cmdlets import transport_cmdlets
from gatepost.shell.transport_config_cmdlets import transport_config_cmdlets


@cache
def all_cmdlets() -> Cmdlets:
    """The table of all cmdlets."""
    found = [
        *directory_cmdlets(),
        *server_cmdlets(),
        *database_cmdlets(),
        *active_copy_cmdlets(),
        *mailbox_cmdlets(),
        *receive_connector_cmdlets(),
        *send_connector_cmdlets(),
        *transport_cmdlets(),
        *transport_config_cmdlets(),
        *queue_cmdlets(),
        *message_cmdlets(),
        *resubmit_cmdlets(),
        *object_cmdlets(all_cmdlets),
    ]
    return Cmdlets(found, ALIASES | TRANSPORT_ALIASES)
