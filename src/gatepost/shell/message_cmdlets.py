"""Cmdlets for messages in the queues of the transports that run on this machine (SPEC T13, V1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gatepost.shell.binding import Kind, Parameter
from gatepost.shell.cmdlet import Cmdlet, Invocation, Output
from gatepost.shell.errors import ShellError
from gatepost.shell.queue_names import (
    EVERY,
    FILTER,
    MOST,
    RESULTS,
    SERVER,
    Named,
    ask,
    change_meant,
    conditions,
    messages_meant,
    queues_meant,
    result_size,
    server_meant,
)
from gatepost.shell.shadow_names import is_shadow, shadow_messages
from gatepost.shell.things import Cell, Text, Thing
from gatepost.transport.operator_filter import shown_time

_MESSAGE = Parameter("Identity", Kind.TEXT, "[SERVER\\]QUEUE\\NUMBER; *\\NUMBER for all copies.", 0)


def message_cmdlets() -> list[Cmdlet]:
    """The cmdlets."""
    chosen = (_MESSAGE, FILTER, SERVER)
    return [
        Cmdlet(
            "Get-Message",
            "Show messages that wait.",
            _get,
            (
                *chosen,
                Parameter("Queue", Kind.TEXT, "Of this queue: [SERVER\\]Submission, a domain, a number."),
                Parameter("IncludeRecipientInfo", Kind.SWITCH, "With the recipients and the last word of a server."),
                RESULTS,
            ),
        ),
        Cmdlet("Suspend-Message", "Let messages wait.", _suspend, chosen, changes=True),
        Cmdlet("Resume-Message", "Let suspended messages go on.", _resume, chosen, changes=True),
        Cmdlet(
            "Remove-Message",
            "Delete messages.",
            _remove,
            (*chosen, Parameter("WithNDR", Kind.FLAG, "Whether the sender is told. Default: $true.")),
            changes=True,
            asks=True,
        ),
        Cmdlet(
            "Redirect-Message",
            "Hand all that waits on a server to another one.",
            _redirect,
            (SERVER, Parameter("Target", Kind.TEXT, "The server that gets it, by its name or full host name.")),
            changes=True,
        ),
        Cmdlet("Export-Message", "Print a message as it would leave.", _export, (_MESSAGE, SERVER)),
    ]


def _get(invocation: Invocation) -> Iterator[Output]:
    most, wanted = result_size(invocation), conditions(invocation)
    info = bool(invocation.bound.flag("IncludeRecipientInfo"))
    given = 0
    for named in _meant(invocation):
        if is_shadow(named.name):
            found = shadow_messages(invocation.session, named, most - given, wanted)
        else:
            found = ask(
                invocation.session, named.server, "messages", message=named.name, limit=most - given, conditions=wanted
            )
        for entry in found:
            yield _thing(named.server, entry, info=info)
        given += len(found)
        if given >= most:
            invocation.session.talk.warn(f"these are the first {most}: -ResultSize Unlimited shows all")
            return


def _meant(invocation: Invocation) -> list[Named]:
    """Messages by identity, or all of a queue: `-Queue`, or queues by the pipeline."""
    bound, given = invocation.bound, invocation.given
    if "Queue" in bound and "Identity" in bound:
        raise ShellError("-Queue or -Identity, not both")
    by_queue = "Queue" in bound or (given and all(thing.kind == "Queue" for thing in given))
    if by_queue:
        return [Named(queue.server, f"{queue.name}\\{EVERY}") for queue in queues_meant(invocation, "Queue")]
    return messages_meant(invocation)


def _thing(server: str, entry: dict[str, Any], *, info: bool) -> Thing:
    properties: dict[str, Cell] = {
        "Identity": f"{server}\\{entry['queue']}\\{entry['number']}",
        "FromAddress": entry["from"] or "<>",
        "Status": entry["status"],
        "Queue": f"{server}\\{entry['queue']}",
        "Subject": entry["subject"],
        "Size": entry["size"],
        "InternetMessageId": entry["message_id"],
        "DateReceived": shown_time(entry["received"]),
        "ExpirationTime": shown_time(entry["expires"]),
        "SourceIP": entry["source"] or None,
        "User": entry["user"] or None,
        "RetryCount": entry["attempts"],
        "LastError": entry["last_error"] or None,
    }
    if info:
        properties["Recipients"] = tuple(
            ";".join(filter(None, (each["address"], each["state"], each["server"], each["reply"])))
            for each in entry["recipients"]
        )
    return Thing("Message", properties, ("Identity", "FromAddress", "Status", "Queue", "Subject"))


# Changing


def _suspend(invocation: Invocation) -> Iterator[Output]:
    return _change(invocation, "freeze_message", lambda name: f"Suspend the message {name}")


def _resume(invocation: Invocation) -> Iterator[Output]:
    return _change(invocation, "resume_message", lambda name: f"Resume the message {name}")


def _remove(invocation: Invocation) -> Iterator[Output]:
    report = invocation.bound.flag("WithNDR") is not False
    told = "its sender is told" if report else "its sender is not told"
    return _change(invocation, "drop", lambda name: f"Delete the message {name} ({told})", report=report)


def _change(invocation: Invocation, verb: str, what: Callable[[str], str], **arguments: bool) -> Iterator[Output]:
    session, wanted = invocation.session, conditions(invocation)
    meant: list[Named] = []
    for named in change_meant(invocation, messages_meant(invocation)):
        if is_shadow(named.name):
            raise ShellError(f"{named} is another hub's message: Retry-Queue -Resubmit $true takes its queue over")
        found = ask(session, named.server, "messages", message=named.name, limit=MOST, conditions=wanted)
        meant += [Named(named.server, f"{entry['queue']}\\{entry['number']}") for entry in found]
    for message in meant:
        if invocation.what_if:
            session.talk.say(f"What if: {what(str(message))}")
        elif invocation.agreed(f"{what(str(message))}?") and not ask(
            session, message.server, verb, message=message.name, **arguments
        ):
            session.talk.warn(f"{message} is being sent now: it was left alone")
    return iter(())


def _redirect(invocation: Invocation) -> Iterator[Output]:
    session = invocation.session
    target = session.server(invocation.bound.need("Target"))
    server = server_meant(invocation)
    if target.name == server:
        raise ShellError(f"what waits on {server} is there already")
    if not target.carries_mail:
        raise ShellError(f"{target.name} carries no mail")
    what = f"Hand all that waits on {server} to {target.name}"
    if invocation.what_if:
        session.talk.say(f"What if: {what}")
    elif invocation.agreed(f"{what}?"):
        count = ask(session, server, "redirect", target=target.name)
        properties: dict[str, Cell] = {"Server": server, "Target": target.name, "MessageCount": count}
        yield Thing("Redirected", properties, tuple(properties))


def _export(invocation: Invocation) -> Iterator[Output]:
    """Text: octets that are none are shown as escapes. `gatepost queue export` gives each as it is."""
    for named in messages_meant(invocation):
        content, more = b"", True
        while more:
            part = ask(invocation.session, named.server, "content", message=named.name, offset=len(content))
            content, more = content + part["data"], part["more"]
        yield Text(content.decode("utf-8", "backslashreplace").replace("\r\n", "\n"))
