"""The pages of forms sign-in: plain HTML that works without a script, in words for users.

Everything a client has sent is escaped where it is shown. Fields have the names of the source system's form, so that
password managers and programs that know it find their way; `token` is ours.
"""

from __future__ import annotations

from enum import IntEnum
from html import escape

from gatepost.access.http.pages import document
from gatepost.configuration.settings import Forms

PRIVATE = "4"
PUBLIC = "0"
"""What the field `trusted` says (facts: the source system's form)."""


class Reason(IntEnum):
    """Why the sign-in page is shown. The number travels in `reason=`."""

    ASKED = 0
    SIGNED_OUT = 1
    WRONG = 2
    TIMED_OUT = 3
    CHANGED = 4
    """The password was changed, or the certificate: the sign-in is void."""
    STALE = 5
    """The form was not the one that this browser was shown, or that was too long ago."""
    BUSY = 6
    UNAVAILABLE = 7


LINKED = frozenset({Reason.ASKED, Reason.SIGNED_OUT, Reason.TIMED_OUT, Reason.CHANGED})
"""Reasons that an address may give; the others come only of a form that was sent."""

_TEXTS = {
    Reason.ASKED: "",
    Reason.SIGNED_OUT: "You are signed out.",
    Reason.WRONG: "The name or the password is not right. Please check both and try again.",
    Reason.TIMED_OUT: "You were signed out because nothing happened for a while. Please sign in again.",
    Reason.CHANGED: "Your sign-in is no longer valid. Please sign in again.",
    Reason.STALE: "This page was open for too long, or your browser does not keep cookies. Please try again.",
    Reason.BUSY: "Too many people are signing in just now. Your password was not checked. "
    "Please wait a moment and try again.",
    Reason.UNAVAILABLE: "Your password cannot be checked at the moment; nothing is wrong with it. "
    "Please try again in a few minutes.",
}
_CALM = frozenset({Reason.ASKED, Reason.SIGNED_OUT, Reason.TIMED_OUT, Reason.CHANGED})


def sign_in_page(
    action: str, destination: str, token: str, forms: Forms, reason: Reason, *, name: str = "", private: bool = False
) -> bytes:
    """The sign-in page. `action` and `destination` are paths; `name` and `private` are kept from a form before."""
    calm = reason in _CALM
    said = f'<p id="said" class="{"said" if calm else "bad"}" role="{"status" if calm else "alert"}" aria-live='
    said += f'"{"polite" if calm else "assertive"}">{escape(_TEXTS[reason])}</p>'
    first, second = ("", " autofocus") if name else (" autofocus", "")
    chosen, other = ("", " checked") if private else (" checked", "")
    described = ' aria-describedby="said" aria-invalid="true"' if reason is Reason.WRONG else ""
    return document(
        "Sign in",
        f"""{said}
<form method="post" action="{escape(action)}">
<input type="hidden" name="destination" value="{escape(destination)}">
<input type="hidden" name="token" value="{escape(token)}">
<label for="username">Name or e-mail address</label>
<input type="text" id="username" name="username" value="{escape(name)}" autocomplete="username" autocapitalize="none"
 autocorrect="off" spellcheck="false" inputmode="email" maxlength="254" required{first}{described}>
<label for="password">Password</label>
<input type="password" id="password" name="password" autocomplete="current-password" maxlength="1024"
 required{second}{described}>
<fieldset><legend>This computer is</legend>
<label class="choice"><input type="radio" name="trusted" value="{PUBLIC}"{chosen}>used by others too
<span class="dim">(signed out after {duration(forms.public_seconds)} without activity)</span></label>
<label class="choice"><input type="radio" name="trusted" value="{PRIVATE}"{other}>my own
<span class="dim">(after {duration(forms.private_seconds)})</span></label>
</fieldset>
<button type="submit">Sign in</button>
</form>""",
    )


def signed_out_page(home: str, open_elsewhere: float = 0.0) -> bytes:
    """What a user sees who has signed out; `home` is the path where they can sign in again.

    `open_elsewhere`: seconds that other servers of this service may still take the sign-in, as they do not know.
    """
    warning = ""
    if open_elsewhere:
        warning = (
            '<p role="alert">Not all servers of this service could be told. Other windows in which this sign-in is '
            f"open may stay signed in for up to {duration(open_elsewhere)} after their last use: close them.</p>\n"
        )
    return document(
        "You are signed out",
        f'{warning}<p role="status">Close all windows of this browser if others use this computer.</p>\n'
        f'<p><a class="button" href="{escape(home)}">Sign in again</a></p>',
    )


def confirm_page(action: str) -> bytes:
    """Asks before signing out: the request came from another site, or nobody can tell."""
    return document(
        "Sign out?",
        f'<form method="post" action="{escape(action)}"><button type="submit">Sign out</button></form>',
    )


def notice_page(title: str, text: str) -> bytes:
    """A title and a sentence."""
    return document(title, f"<p>{escape(text)}</p>")


def duration(seconds: float) -> str:
    """A length of time in words, in the largest unit that is exact enough for a person."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            count = round(seconds / size)
            return f"{count} {word}{'' if count == 1 else 's'}"
    count = max(1, round(seconds))
    return f"{count} second{'' if count == 1 else 's'}"
