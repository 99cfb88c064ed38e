"""The answer to a request that this front end passes on to nobody: a redirect or a refusal (SPEC C3 to C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gatepost.access.http.redirects import redirect
from gatepost.access.http.refusals import status_of
from gatepost.routing.outcome import Cause, Redirect, RedirectForm, Refuse

if TYPE_CHECKING:
    from gatepost.access.http.exchange import Exchange


def answer_not_ours(exchange: Exchange, decision: Redirect | Refuse) -> None:
    """Answer the client, which ends the exchange."""
    leg, asked = exchange.leg, exchange.asked
    if isinstance(decision, Refuse):
        status = status_of(decision.cause, asked.kind)
        exchange.refuse(status, decision.message, cause=decision.cause, told=decision.message)
    elif _leads_back(leg.origin, decision):
        exchange.refuse(508, "a redirect to where the client is already: look at the external URLs", cause=Cause.LOOP)
    else:
        status, fields, kind, body = redirect(leg, decision, asked.path, asked.query)
        exchange.end()
        leg.answer(status, body, fields=fields + exchange.extra, content_type=kind)


def _leads_back(origin: bytes, decision: Redirect) -> bool:
    """Whether the client would come to this very front end by the same name again, and again."""
    here = origin.decode("ascii", "replace").lower()
    return decision.form is not RedirectForm.OWN_PATH and f"{decision.location.lower()}/".startswith(here + "/")
