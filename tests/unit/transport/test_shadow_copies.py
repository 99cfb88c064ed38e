"""What taking over and following do to an envelope, and how two hubs count the same recipients (SPEC S1, S3)."""

from __future__ import annotations

from gatepost.transport.message import Envelope, Recipient, RecipientState, Shadow, Watcher
from gatepost.transport.shadow import copies

W, D, F, U, S = (
    RecipientState.WAITING, RecipientState.DELIVERED, RecipientState.FAILED, RecipientState.UNCERTAIN,
    RecipientState.SHADOWED,
)  # fmt: skip


def envelope(*states: RecipientState) -> Envelope:
    recipients = [Recipient(f"r{i}@contoso.com", state=state) for i, state in enumerate(states)]
    return Envelope("s@contoso.com", recipients, 1.0, 2.0)


def states(found: Envelope) -> list[int]:
    return [recipient.state for recipient in found.recipients]


def test_a_copy_keeps_what_is_settled_and_shadows_the_rest() -> None:
    ours = envelope(W, D, U, F, S)
    ours.shadows = [Shadow("x", "x1", "tx", [4], 1.0)]
    ours.watchers, ours.unprotected = [Watcher("y", "ty")], True
    copy = copies.copy_of(ours, "a", "a1", "t", 5.0)
    assert states(copy) == [S, D, S, F, D]
    assert copy.shadows == [Shadow("a", "a1", "t", [0, 1, 2, 3, 4], 5.0)]
    assert (copy.watchers, copy.unprotected) == ([], False)
    assert states(ours) == [W, D, U, F, S]


def test_a_copy_that_is_taken_over_waits_again_for_what_is_unfinished() -> None:
    copy = copies.copy_of(envelope(W, D, W), "a", "a1", "t", 5.0)
    copies.shrink(copy, "a", "t", [2])
    assert copies.take_over(copy, "a", "t") == [0]
    assert states(copy) == [W, D, D]
    assert copy.shadows == []
    assert copy.watchers == [Watcher("a", "t", [0, 1, 2])]


def test_what_was_handed_on_is_counted_as_the_next_hub_does() -> None:
    ours = envelope(D, W, W, W)
    copies.hand_on(ours, [3, 1], "b", "b1", "t", 5.0)
    assert states(ours) == [D, S, W, S]
    assert copies.shrink(ours, "b", "t", [0]) == [3]
    assert copies.take_over(ours, "b", "t") == [1]
    assert states(ours) == [D, W, W, D]
    watcher = ours.watchers[0]
    assert copies.counted(watcher, [1, 2, 3]) == [1, 0]


def test_who_follows_counts_as_before() -> None:
    ours = envelope(W, D, W)
    ours.watchers = [Watcher("b", "t"), Watcher("c", "u")]
    assert copies.follow(ours, "b", "b1", "t", 5.0) == [0, 2]
    assert states(ours) == [S, D, S]
    assert ours.shadows == [Shadow("b", "b1", "t", [0, -1, 2], 5.0)]
    assert [watcher.token for watcher in ours.watchers] == ["u"]
    assert copies.shrink(ours, "b", "t", [1, 2]) == [2]
    assert copies.take_over(ours, "b", "t") == [0]


def test_who_follows_gives_away_only_what_the_copy_covers() -> None:
    ours = envelope(W, W)
    ours.watchers = [Watcher("b", "t", [1])]
    assert copies.follow(ours, "b", "b1", "t", 5.0) == [1]
    assert copies.open_places(ours) == [0]
    assert not copies.close(ours)


def test_what_is_taken_over_is_not_covered_by_copies_from_before() -> None:
    ours = envelope(W, S)
    ours.watchers = [Watcher("w", "tw")]
    ours.shadows = [Shadow("b", "b1", "t", [1], 5.0)]
    copies.take_over(ours, "b", "t")
    assert ours.watchers == [Watcher("w", "tw", [0, -1]), Watcher("b", "t", [1])]
    assert copies.follow(ours, "w", "w1", "tw", 6.0) == [0]
    assert copies.open_places(ours) == [1]


def test_what_was_finished_elsewhere_is_settled() -> None:
    ours = envelope(W, F, W)
    ours.watchers = [Watcher("b", "t", [0, 1, -1])]
    assert copies.drop(ours, "b", "t") == [0]
    assert states(ours) == [D, F, W]


def test_what_another_hub_has_settled_is_settled_here() -> None:
    ours = envelope(W, W, S)
    ours.watchers = [Watcher("b", "t", [2, 1])]
    assert copies.settle(ours, [0, 1, 7], "b", "t") == [1]
    assert copies.settle(ours, [0], "x", "t") == []
    assert copies.settle(ours, [0, 9]) == [0]


def test_a_copy_that_is_let_go_is_settled() -> None:
    ours = envelope(S, S, W)
    ours.shadows = [Shadow("b", "b1", "t", [0], 1.0), Shadow("c", "c1", "u", [1], 1.0)]
    assert copies.let_go(ours, "b", "t") == [0]
    assert states(ours) == [D, S, W]
    assert [shadow.token for shadow in ours.shadows] == ["u"]


def test_nobody_watches_what_is_not_open() -> None:
    ours = envelope(S, D)
    ours.watchers = [Watcher("b", "t")]
    assert copies.close(ours)
    assert ours.watchers == []


def test_the_words_of_another_copy_change_nothing() -> None:
    ours = envelope(S)
    ours.shadows = [Shadow("b", "b1", "t", [0], 1.0)]
    for change in (copies.take_over, copies.let_go, copies.drop):
        assert change(ours, "c", "t") == []
    assert copies.shrink(ours, "b", "u", [0]) == []
    assert copies.shrink(ours, "b", "t", [-1, 5]) == []
    assert copies.follow(ours, "b", "b1", "t", 1.0) == []
    assert states(ours) == [S]


def test_copies_that_are_not_needed_are_unwatched() -> None:
    ours = envelope(W)
    ours.watchers = [Watcher("b", "t"), Watcher("c", "u")]
    copies.unwatch(ours, ["t"])
    assert ours.watchers == [Watcher("c", "u")]
