"""The hook for rspamd: each message is sent to its `/checkv2` by HTTP as it is read, and its JSON answer obeyed.

Actions: `no action` takes the message; `add header` takes it with `X-Spam: Yes`; `rewrite subject` with the subject
that rspamd gives; `greylist` and `soft reject` answer 451; `reject` answers 550. `discard` answers 550 too: mail is
never thrown away in silence. Fields in `milter` are added and removed. An action that is not known takes the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import httpx2
import msgspec

from gatepost.transport.headers.words import printable
from gatepost.transport.hooks.hook import (
    MAX_ANSWER,
    MAX_FIELDS,
    HookAction,
    HookFault,
    OnFailure,
    Question,
    Verdict,
    deferred,
    not_asked,
    rejected,
    safe_fields,
    safe_name,
)

MAX_RECIPIENTS = 500
"""Recipients that rspamd is told of."""
MAX_VALUE = 512
UPSTREAM = frozenset({b"x-spam"})
"""What only rspamd is to say: left out of every message it has judged."""


@dataclass(frozen=True, slots=True)
class RspamdSettings:
    """Where rspamd's normal worker listens, as `http://127.0.0.1:11333`. `seconds` are for a whole check."""

    url: str
    seconds: float = 30.0
    on_failure: OnFailure = OnFailure.DEFER
    max_connections: int = 16
    mta_name: str = ""
    password: str = field(default="", repr=False)


class _Answer(msgspec.Struct):
    action: str
    score: float = 0.0
    required_score: float = 0.0
    subject: str = ""
    messages: dict[str, object] | list[object] = msgspec.field(default_factory=dict)
    milter: dict[str, object] = msgspec.field(default_factory=dict)


class RspamdHook:
    """Asks one rspamd. Belongs to one event loop."""

    def __init__(self, settings: RspamdSettings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._url = settings.url.rstrip("/") + "/checkv2"
        limits = httpx2.Limits(
            max_connections=settings.max_connections, max_keepalive_connections=settings.max_connections
        )
        self._http = httpx2.AsyncClient(
            transport=transport, limits=limits, timeout=settings.seconds, trust_env=False, follow_redirects=False
        )

    async def check(self, question: Question, chunks: AsyncIterator[bytes]) -> Verdict:
        """See `ContentHook`."""
        try:
            async with asyncio.timeout(self._settings.seconds):
                return verdict(await self._ask(question, chunks))
        except TimeoutError:
            return self._not_asked(f"no answer within {self._settings.seconds:g} s")
        except httpx2.HTTPError as fault:
            return self._not_asked(f"{type(fault).__name__}: {fault}")
        except HookFault as fault:
            return self._not_asked(str(fault))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _not_asked(self, why: str) -> Verdict:
        return not_asked(self._settings.on_failure, f"rspamd: {why}")

    async def _ask(self, question: Question, chunks: AsyncIterator[bytes]) -> bytes:
        headers = list(_headers(question, self._settings))
        async with self._http.stream("POST", self._url, content=chunks, headers=headers) as response:
            if response.status_code != httpx2.codes.OK:
                raise HookFault(f"status {response.status_code}")
            answer = bytearray()
            async for piece in response.aiter_bytes():
                answer += piece
                if len(answer) > MAX_ANSWER:
                    raise HookFault("the answer is too long")
        return bytes(answer)


def _headers(question: Question, settings: RspamdSettings) -> Iterable[tuple[bytes, bytes]]:
    """What rspamd is told of the envelope, in the names of its protocol."""
    envelope, source = question.envelope, question.envelope.source
    version, _, cipher = source.tls.partition(" ")
    facts = [
        ("Queue-Id", question.queue_id), ("IP", source.address), ("Helo", source.name), ("From", envelope.sender),
        ("User", source.user), ("MTA-Name", settings.mta_name), ("TLS-Version", version), ("TLS-Cipher", cipher),
        ("Password", settings.password),
    ]  # fmt: skip
    facts += [("Rcpt", recipient.address) for recipient in envelope.recipients[:MAX_RECIPIENTS]]
    for name, value in facts:
        if value:
            yield name.encode("ascii"), printable(value, MAX_VALUE).encode("utf-8", "replace")
    if question.size is not None:
        yield b"Content-Length", b"%d" % question.size


def verdict(answer: bytes) -> Verdict:
    """What rspamd's answer (JSON) calls for. Raises `HookFault` for one that is none."""
    try:
        said = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise HookFault(f"the answer cannot be read: {fault}") from fault
    note = printable(f"rspamd: {said.action} {said.score:.2f}/{said.required_score:.2f}", MAX_VALUE)
    words = said.messages.get("smtp_message") if isinstance(said.messages, dict) else None
    text = words if isinstance(words, str) else ""
    if said.action in ("reject", "discard"):
        return rejected(text or "Message refused as spam", note)
    if said.action in ("greylist", "soft reject"):
        return deferred(text, note)
    fields, without = list(_added(said.milter)), set(UPSTREAM | _removed(said.milter))
    if said.action == "add header":
        fields.insert(0, ("X-Spam", "Yes"))
    if said.action == "rewrite subject" and said.subject:
        fields.insert(0, ("Subject", said.subject))
        without.add(b"subject")
    return Verdict(HookAction.ACCEPT, before=safe_fields(fields), without=frozenset(without), note=note)


def _added(milter: dict[str, object]) -> Iterable[tuple[str, str]]:
    """Fields to add: a value is a text, a table with `value`, or a list of these."""
    added = milter.get("add_headers")
    for name, values in added.items() if isinstance(added, dict) else ():
        for value in values if isinstance(values, list) else [values]:
            text = value.get("value") if isinstance(value, dict) else value
            if isinstance(text, str):
                yield str(name), text


def _removed(milter: dict[str, object]) -> set[bytes]:
    removed = milter.get("remove_headers")
    names = list(removed)[:MAX_FIELDS] if isinstance(removed, dict) else []
    return {safe for name in names if (safe := safe_name(str(name)))}
