"""What another hub is given of a message: its envelope, without what is only this hub's business (SPEC S1, S4)."""

from __future__ import annotations

import msgspec

from gatepost.transport.dispatch import settling
from gatepost.transport.message import Envelope, RecipientState

_encode = msgspec.msgpack.Encoder().encode


def copy_of(envelope: Envelope) -> bytes:
    """The envelope of a copy, encoded: who is still open is as here, everybody else is settled.

    Attempts, last replies and what senders were told go along, so that whoever takes over repeats no report
    (smtp-facts c.1, row 20). Recipients that a third hub is responsible for are none of the copy's.
    """
    recipients = envelope.recipients
    if any(recipient.state not in settling.OPEN for recipient in recipients):
        recipients = [
            msgspec.structs.replace(recipient, state=int(RecipientState.DELIVERED))
            if recipient.state == RecipientState.SHADOWED
            else recipient
            for recipient in recipients
        ]
    elif not envelope.watchers and not envelope.unprotected and not envelope.unchecked:
        return _encode(envelope)
    copy = msgspec.structs.replace(
        envelope, recipients=recipients, shadows=[], watchers=[], unprotected=False, unchecked=False, crashes=0
    )
    return _encode(copy)
