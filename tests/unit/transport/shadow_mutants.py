"""Rules of shadow redundancy, broken one by one: the simulation must find each (else it proves nothing).

    PYTHONPATH=src python tests/unit/transport/shadow_mutants.py [--runs N]

finds for each the first seed that shows it, for the table in `test_simulated_shadows.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from shadow_hub import SimulatedHub
from shadow_simulation import play, run_plan, schedule, shrink

from gatepost.transport.message import RecipientState
from gatepost.transport.shadow import copies
from gatepost.transport.shadow.decisions import Follow, GoOn, Reason, Shrink
from gatepost.transport.shadow.fencing import Fence
from gatepost.transport.shadow.keeper import Keeper
from gatepost.transport.shadow.keeping import Keeping
from gatepost.transport.shadow.primary import Primary
from gatepost.transport.shadow.watching import Watching
from gatepost.wire.shadow_messages import Discarded, Status

Change = tuple[Any, str, Any]
Mutant = Callable[[], Iterator[Change]]


def _then(method: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
    def both(self: Any, *arguments: Any, **named: Any) -> Any:
        return after(self, method(self, *arguments, **named))

    return both


def copy_held_before_it_is_on_disk() -> Iterator[Change]:
    def hold(self: SimulatedHub, server: str, identity: str, token: str, blob: bytes, reply: Any) -> None:
        real(self, server, identity, token, blob, lambda _answer: None)
        reply((self.disk.identity, ""))

    real = SimulatedHub.hold
    yield SimulatedHub, "hold", hold


def handed_on_before_it_is_on_disk() -> Iterator[Change]:
    def mail(self: SimulatedHub, server: str, identity: str, token: str, blob: bytes, reply: Any) -> None:
        real(self, server, identity, token, blob, lambda _answer: None)
        reply((self.disk.identity, 1))

    real = SimulatedHub.mail
    yield SimulatedHub, "mail", mail


def copy_in_doubt_counts_as_held() -> Iterator[Change]:
    def in_doubt(self: Primary, number: int, server: str, token: str) -> None:
        self.held(number, server, self._of(server).identity, token, self._moments.next())

    yield Primary, "in_doubt", in_doubt
    yield SimulatedHub, "offer", _offer_believing(SimulatedHub.offer)


def _offer_believing(real: Any) -> Any:
    def offer(self: SimulatedHub, number: int, server: str, token: str, others: list[str], done: Any) -> None:
        real(self, number, server, token, [], lambda what: done("held" if what == "none" else what))

    return offer


def no_fencing() -> Iterator[Change]:
    yield Primary, "waits", lambda self, number: False
    yield Primary, "questions", lambda self, server, limit: None


def what_a_watcher_took_over_is_sent_all_the_same() -> Iterator[Change]:
    def answered(self: Primary, *arguments: Any) -> Any:
        return [GoOn(step.number) if isinstance(step, Follow) else step for step in real(self, *arguments)]

    real = Primary.answered
    yield Primary, "answered", answered
    yield Fence, "waits", lambda self, number: False


def what_a_watcher_has_finished_is_sent_all_the_same() -> Iterator[Change]:
    yield Primary, "finished", lambda self, server, token, busy: []
    yield Primary, "told", lambda self, server, identity, tokens, busy: []


def settled_as_soon_as_it_is_being_sent() -> Iterator[Change]:
    def send_out(self: SimulatedHub, number: int, envelope: Any, places: list[int]) -> None:
        for watcher in envelope.watchers:
            event = Discarded(watcher.token, None, [], self.clock())
            self.primary._of(watcher.server).discards.add(event, self.clock())
        real(self, number, envelope, places)

    real = SimulatedHub.send_out
    yield SimulatedHub, "send_out", send_out


def every_event_is_for_the_whole() -> Iterator[Change]:
    def settled(self: Primary, *arguments: Any, **named: Any) -> Any:
        notes = real(self, *arguments, **named)
        for note in notes:
            note.event.places = None
        return notes

    real = Primary.settled
    yield Primary, "settled", settled


def a_shadow_shrinks_to_nothing() -> Iterator[Change]:
    def event(self: Keeper, server: str, event: Any, now: float) -> Any:
        step = real(self, server, event, now)
        return Shrink(step.number, step.server, step.token, (0, 1, 2)) if isinstance(step, Shrink) else step

    real = Keeper.event
    yield Keeper, "event", event


def a_primary_with_another_disk_is_not_noticed() -> Iterator[Change]:
    def leave(self: Keeping, identity: str, reason: Reason) -> int:
        return 0 if reason is Reason.IDENTITY else real(self, identity, reason)

    real = Keeping.leave
    yield Keeping, "leave", leave


def a_watcher_with_another_disk_is_not_noticed() -> Iterator[Change]:
    def hold(self: Watching, token: str, number: int, identity: str, moment: int) -> None:
        real(self, token, number, identity, 1 << 60)

    real = Watching.hold
    yield Watching, "hold", hold


def nothing_is_protected_anew() -> Iterator[Change]:
    yield Primary, "unprotected", lambda self, limit: []


def what_the_primary_does_not_know_is_kept() -> Iterator[Change]:
    yield Keeper, "questions", lambda self, server, now, limit: (None, [])


def copies_are_let_go_whatever_the_primary_says() -> Iterator[Change]:
    def answered(self: Keeper, question: Any, identity: str, statuses: Sequence[int]) -> Any:
        return real(self, question, identity, [Status.UNKNOWN] * len(statuses))

    real = Keeper.answered
    yield Keeper, "answered", answered


def no_primary_is_ever_held_dead() -> Iterator[Change]:
    yield Keeper, "_promote", lambda self, server, keeping, steady: None
    yield Keeper, "heard", _heard_only(Keeper.heard)


def _heard_only(real: Any) -> Any:
    def heard(self: Keeper, server: str, identity: str, moment: int, now: float) -> None:
        known = self._of(server).identity
        real(self, server, known or identity, moment, now)

    return heard


def a_taken_over_message_is_said_to_be_held() -> Iterator[Change]:
    yield (
        Primary,
        "status",
        lambda self, server, token: Status.UNKNOWN if self._of(server).number(token) else real(self, server, token),
    )
    real = Primary.status


def a_copy_made_anew_covers_nothing() -> Iterator[Change]:
    def copy_of(envelope: Any, *arguments: Any) -> Any:
        copy = real(envelope, *arguments)
        for recipient in copy.recipients[1:]:
            recipient.state = RecipientState.DELIVERED
        return copy

    real = copies.copy_of
    yield copies, "copy_of", copy_of


def who_is_starting_claims_what_it_does_not_know_yet() -> Iterator[Change]:
    def status(self: Primary, server: str, token: str) -> Status:
        found = real(self, server, token)
        return Status.OPEN if found is Status.LATER else found

    real = Primary.status
    yield Primary, "status", status


def copies_expire_by_the_wall_clock() -> Iterator[Change]:
    yield Keeper, "until", lambda self, now: now + self._settings.safety_net_hold_time + self._expiration


def who_handed_a_message_on_is_believed_to_keep_it() -> Iterator[Change]:
    yield Watching, "verify", lambda self, now: None


MUTANTS = [
    copy_held_before_it_is_on_disk,
    handed_on_before_it_is_on_disk,
    copy_in_doubt_counts_as_held,
    no_fencing,
    what_a_watcher_took_over_is_sent_all_the_same,
    what_a_watcher_has_finished_is_sent_all_the_same,
    settled_as_soon_as_it_is_being_sent,
    every_event_is_for_the_whole,
    a_shadow_shrinks_to_nothing,
    a_primary_with_another_disk_is_not_noticed,
    a_watcher_with_another_disk_is_not_noticed,
    nothing_is_protected_anew,
    what_the_primary_does_not_know_is_kept,
    copies_are_let_go_whatever_the_primary_says,
    no_primary_is_ever_held_dead,
    a_taken_over_message_is_said_to_be_held,
    a_copy_made_anew_covers_nothing,
    who_is_starting_claims_what_it_does_not_know_yet,
    copies_expire_by_the_wall_clock,
]


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Within, the rules are broken so."""
    patches = [patch.object(owner, name, new) for owner, name, new in mutant()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


def first_seed(mutant: Mutant, runs: int, begin: int = 0) -> tuple[int, str]:
    """The first seed from `begin` that shows it, and what it shows; -1: none of so many does."""
    with broken(mutant):
        for seed in range(begin, begin + runs):
            wrong = play(seed).wrong
            if wrong:
                return seed, wrong[0]
    return -1, ""


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="this one; its schedule is shrunk and printed")
    options = parser.parse_args()
    for mutant in MUTANTS:
        if options.only in {"", mutant.__name__}:
            seed, wrong = first_seed(mutant, options.runs, options.seed)
            print(mutant.__name__, seed, wrong, flush=True)
            if options.only and seed >= 0:
                with broken(mutant):
                    print(shrink(schedule(seed), run_plan))


if __name__ == "__main__":
    main()
