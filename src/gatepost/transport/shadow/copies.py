"""What taking over, following, letting go do to an envelope (SPEC S1, S3). Pure; each changes the envelope given.

A copy counts its recipients as the first primary did; `Shadow.places` and `Watcher.places` say where they are in this
envelope. -1 stands for a recipient that the copy does not cover any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from gatepost.transport.message import Envelope, RecipientState, Shadow, Watcher

OPEN = frozenset({RecipientState.WAITING, RecipientState.UNCERTAIN})


def open_places(envelope: Envelope) -> list[int]:
    """Recipients that we are responsible for and that are not settled."""
    return [place for place, recipient in enumerate(envelope.recipients) if recipient.state in OPEN]


def find_shadow(envelope: Envelope, server: str, token: str) -> Shadow | None:
    """What is kept for that primary under this token."""
    return next((s for s in envelope.shadows if s.token == token and s.primary == server), None)


def find_watcher(envelope: Envelope, server: str, token: str) -> Watcher | None:
    """Who watches under this token."""
    return next((w for w in envelope.watchers if w.token == token and w.server == server), None)


def counted(watcher: Watcher, places: Iterable[int]) -> list[int]:
    """How the watcher's copy counts recipients at `places` of our envelope; what it does not cover is left out."""
    if not watcher.places:
        return list(places)
    known = {place: i for i, place in enumerate(watcher.places)}
    return [known[place] for place in places if place in known]


def copy_of(envelope: Envelope, primary: str, identity: str, token: str, now: float) -> Envelope:
    """The envelope of a copy that another hub is to hold for `primary`, which is ourselves. It shares no recipients."""
    recipients = [msgspec.structs.replace(recipient) for recipient in envelope.recipients]
    for recipient in recipients:
        if recipient.state in OPEN:
            recipient.state = RecipientState.SHADOWED
        elif recipient.state == RecipientState.SHADOWED:
            recipient.state = RecipientState.DELIVERED  # others are responsible, and we keep their shadow
    shadow = Shadow(primary, identity, token, list(range(len(recipients))), now)
    return msgspec.structs.replace(envelope, recipients=recipients, shadows=[shadow], watchers=[], unprotected=False)


def hand_on(envelope: Envelope, places: Sequence[int], server: str, identity: str, token: str, now: float) -> None:
    """`server` has taken over what is at `places`, in the order in which it was told them; we keep the shadow."""
    for place in places:
        envelope.recipients[place].state = RecipientState.SHADOWED
    envelope.shadows.append(Shadow(server, identity, token, list(places), now))


def take_over(envelope: Envelope, server: str, token: str) -> list[int]:
    """We are responsible from now on, and the old primary is a watcher; which recipients wait again.

    Copies that others keep of this message do not cover them: they were told that these are settled.
    """
    shadow = find_shadow(envelope, server, token)
    if shadow is None:
        return []
    again = _with_state(envelope, shadow.places, {RecipientState.SHADOWED}, RecipientState.WAITING)
    envelope.shadows.remove(shadow)
    for watcher in envelope.watchers:
        places = watcher.places or list(range(len(envelope.recipients)))
        watcher.places = [-1 if place in again else place for place in places]
    envelope.watchers.append(Watcher(server, token, list(shadow.places)))
    return again


def follow(envelope: Envelope, server: str, identity: str, token: str, now: float) -> list[int]:
    """`server` has taken over: we keep the shadow of what its copy covers; which recipients that are."""
    watcher = find_watcher(envelope, server, token)
    if watcher is None:
        return []
    places = watcher.places or list(range(len(envelope.recipients)))
    ours = _with_state(envelope, places, OPEN, RecipientState.SHADOWED)
    envelope.watchers.remove(watcher)
    if ours:
        kept = [place if place in ours else -1 for place in places]
        envelope.shadows.append(Shadow(server, identity, token, kept, now))
    return ours


def drop(envelope: Envelope, server: str, token: str) -> list[int]:
    """`server` has finished what its copy covers; which recipients are settled by that."""
    watcher = find_watcher(envelope, server, token)
    if watcher is None:
        return []
    envelope.watchers.remove(watcher)
    places = watcher.places or range(len(envelope.recipients))
    return _with_state(envelope, places, OPEN, RecipientState.DELIVERED)


def settle(envelope: Envelope, places: Sequence[int], server: str = "", token: str = "") -> list[int]:
    """Recipients are settled of which we did not know it; with a token `places` are as that watcher's copy counts
    them. Which were open."""
    if token:
        watcher = find_watcher(envelope, server, token)
        if watcher is None:
            return []
        if watcher.places:
            places = [watcher.places[i] for i in places if 0 <= i < len(watcher.places)]
    known = [place for place in places if place < len(envelope.recipients)]
    return _with_state(envelope, known, OPEN, RecipientState.DELIVERED)


def shrink(
    envelope: Envelope, server: str, token: str, counted_places: Iterable[int], counted_late: Iterable[int] = ()
) -> list[int]:
    """The primary has settled these of the copy, and told the delay of those that are late; which recipients are
    settled by that here."""
    shadow = find_shadow(envelope, server, token)
    if shadow is None:
        return []
    for i in counted_late:
        if 0 <= i < len(shadow.places) and shadow.places[i] >= 0:
            envelope.recipients[shadow.places[i]].delay_told = True
    places = [shadow.places[i] for i in counted_places if 0 <= i < len(shadow.places)]
    return _with_state(envelope, places, {RecipientState.SHADOWED}, RecipientState.DELIVERED)


def let_go(envelope: Envelope, server: str, token: str) -> list[int]:
    """Nothing is kept for that primary under this token any more; which recipients are settled by that."""
    shadow = find_shadow(envelope, server, token)
    if shadow is None:
        return []
    envelope.shadows.remove(shadow)
    return _with_state(envelope, shadow.places, {RecipientState.SHADOWED}, RecipientState.DELIVERED)


def close(envelope: Envelope) -> bool:
    """Whether no recipient is open; then nobody watches the message any more (its watchers have been told)."""
    if open_places(envelope):
        return False
    envelope.watchers = []
    return True


def unwatch(envelope: Envelope, tokens: Iterable[str]) -> None:
    """These copies are not needed any more."""
    gone = set(tokens)
    envelope.watchers = [watcher for watcher in envelope.watchers if watcher.token not in gone]


def _with_state(
    envelope: Envelope, places: Iterable[int], before: AbstractSet[RecipientState], after: RecipientState
) -> list[int]:
    found = [place for place in places if place >= 0 and envelope.recipients[place].state in before]
    for place in found:
        envelope.recipients[place].state = after
    return found
