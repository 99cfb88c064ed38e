"""Command lines of SMTP as a server reads them: MAIL and RCPT with their parameters, EHLO's argument, xtext.

RFC 5321 section 4.1; parameters of RFC 1870 (SIZE), 6152 (BODY), 6531 (SMTPUTF8), 3461 (RET, ENVID, NOTIFY, ORCPT),
4954 (AUTH) and 8689 (REQUIRETLS). `MAIL FROM: <a@b>` with spaces after the colon is let through, as others do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gatepost.organization.addresses import is_host_name
from gatepost.wire.smtp_address import BadAddress, NeedsUtf8, normal_domain, parse_path
from gatepost.wire.smtp_reply import Reply

MAX_ENVELOPE_ID = 100
"""Characters of ENVID (RFC 3461, section 5.4)."""
MAX_ORIGINAL_RECIPIENT = 500
"""Characters of ORCPT (RFC 3461, section 5.4)."""
MAX_SIZE_DIGITS = 20
"""Digits of SIZE (RFC 1870, section 4)."""
NOTIFY = {"NEVER": 1, "SUCCESS": 2, "FAILURE": 4, "DELAY": 8}
"""The words of NOTIFY and their bits, which are those of `transport.message.Notify`."""
SHADOW_TOKEN = re.compile(r"[0-9a-f-]{1,64}")
"""What copies of shadow redundancy are called."""

_PATH = re.compile(r'<(?:[^"<>\\\s]++|"(?:[^"\\]|\\.)*+")*+>')
_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*+)(?:=([!-<>-~\x80-\U0010ffff]++))?")
_XTEXT = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})*+")
_HEX = re.compile(r"\+([0-9A-F]{2})")
_TO_XTEXT = re.compile(r"[^!-*,-<>-~]")
_UTF8_ADDRESS = re.compile(r"(?:[!-*,-<>-\[\]-~\x80-\U0010ffff]|\\x\{[0-9A-F]{2,6}\}|\+[0-9A-F]{2})*+")
"""`utf-8` addresses of ORCPT (RFC 6533, section 3), and what xtext makes of them."""
_ADDRESS_TYPE = re.compile(r"[A-Za-z0-9-]{1,40}")
_COMMAND = re.compile(rb"([A-Za-z][A-Za-z0-9-]{0,15})(?:[ \t]+(.*))?", re.DOTALL)


class BadCommand(ValueError):
    """A command cannot be carried out; `reply` says so to the client."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


@dataclass(frozen=True, slots=True)
class MailCommand:
    """MAIL: `sender` is empty for `<>`. What was not given is None, empty or False; `body` is then 7BIT."""

    sender: str
    size: int | None = None
    body: str = "7BIT"
    smtputf8: bool = False
    returns: str = ""
    """FULL, HDRS or nothing."""
    envelope_id: str = ""
    """ENVID as it came, in xtext."""
    auth: str | None = None
    """AUTH, decoded; `<>` is the empty string."""
    require_tls: bool = False
    shadow: str = ""
    """XSHADOW: the sender, a server of the organization, keeps a shadow under this token (SPEC S1)."""


@dataclass(frozen=True, slots=True)
class RcptCommand:
    """RCPT: `notify` are bits of `NOTIFY`, `original` is ORCPT as it came (`rfc822;` and xtext)."""

    address: str
    notify: int = 0
    original: str = ""


def split_command(line: bytes) -> tuple[bytes, bytes]:
    """Verb in upper case and the rest of a line without its end. The verb is empty when there is none."""
    match = _COMMAND.fullmatch(line)
    if match is None:
        return b"", b""
    return match[1].upper(), (match[2] or b"").rstrip(b" \t")


def parse_mail(argument: bytes, *, shadow: bool = False) -> MailCommand:
    """What follows `MAIL `; `shadow`: XSHADOW is offered. Raises `BadCommand`."""
    path, parameters = _path_and_parameters(argument, "FROM:", "MAIL FROM:<address>")
    size, body, utf8, returns, envelope_id, auth, require_tls, token = None, "7BIT", False, "", "", None, False, ""
    for keyword, value in parameters:
        if keyword == "SIZE":
            if not value.isascii() or not value.isdigit() or len(value) > MAX_SIZE_DIGITS:
                raise _bad_parameter("SIZE")
            size = int(value)
        elif keyword == "BODY":
            body = value.upper()
            if body not in {"7BIT", "8BITMIME"}:
                raise _bad_parameter("BODY")
        elif keyword == "SMTPUTF8":
            _no_value(keyword, value)
            utf8 = True
        elif keyword == "RET":
            returns = value.upper()
            if returns not in {"FULL", "HDRS"}:
                raise _bad_parameter("RET")
        elif keyword == "ENVID":
            if not value or len(value) > MAX_ENVELOPE_ID or not _is_printable_xtext(value):
                raise _bad_parameter("ENVID")
            envelope_id = value
        elif keyword == "AUTH":
            auth = _auth(value)
        elif keyword == "REQUIRETLS":
            _no_value(keyword, value)
            require_tls = True
        elif keyword == "XSHADOW" and shadow:
            if not SHADOW_TOKEN.fullmatch(value):
                raise _bad_parameter("XSHADOW")
            token = value
        else:
            raise _unknown_parameter()
    sender = _address(path, utf8=utf8, sender=True)
    return MailCommand(sender, size, body, utf8, returns, envelope_id, auth, require_tls, token)


def parse_rcpt(argument: bytes, *, utf8: bool = False) -> RcptCommand:
    """What follows `RCPT `; `utf8`: MAIL asked for SMTPUTF8. Raises `BadCommand`."""
    path, parameters = _path_and_parameters(argument, "TO:", "RCPT TO:<address>")
    notify, original = 0, ""
    for keyword, value in parameters:
        if keyword == "NOTIFY":
            notify = _notify(value)
        elif keyword == "ORCPT":
            if not _is_original_recipient(value):
                raise _bad_parameter("ORCPT")
            original = value
        else:
            raise _unknown_parameter()
    return RcptCommand(_address(path, utf8=utf8, sender=False), notify, original)


def parse_greeting(argument: bytes) -> str:
    """The name or address literal that a client gives at EHLO or HELO. Raises `BadCommand`.

    Names are not believed, only kept from doing harm: a host name (underscores and a final dot are seen in the field),
    or a literal of an IP address. What follows a space is dropped, as some clients say more.
    """
    try:
        name = argument.decode("utf-8").split(" ", 1)[0]
        normal_domain(name)
    except (UnicodeDecodeError, BadAddress):
        raise BadCommand(Reply(501, "A host name or an address literal is needed", "5.5.4")) from None
    return name


def is_greeting_name(name: str) -> bool:
    """Whether `name` could be said at EHLO by ourselves: ASCII host name or literal."""
    try:
        return name.isascii() and bool(normal_domain(name)) and (name.startswith("[") or is_host_name(name))
    except BadAddress:
        return False


def decode_xtext(text: str) -> str:
    """What `text` stands for (RFC 3461, section 4). Raises ValueError when it is not xtext."""
    if not _XTEXT.fullmatch(text):
        raise ValueError("not xtext")
    return _HEX.sub(lambda match: chr(int(match[1], 16)), text)


def encode_xtext(text: str) -> str:
    """`text`, whose characters stand for octets, as xtext. Raises ValueError for characters beyond U+00FF."""
    text.encode("latin-1")
    return _TO_XTEXT.sub(lambda match: f"+{ord(match[0]):02X}", text)


def _path_and_parameters(argument: bytes, prefix: str, syntax: str) -> tuple[str, list[tuple[str, str]]]:
    try:
        text = argument.decode("utf-8")
    except UnicodeDecodeError:
        raise BadCommand(Reply(501, "Neither ASCII nor UTF-8", "5.5.2")) from None
    if text[: len(prefix)].upper() != prefix:
        raise BadCommand(Reply(501, f"Syntax: {syntax}", "5.5.4"))
    text = text[len(prefix) :].lstrip(" \t")
    path = _PATH.match(text)
    if path is None:
        raise BadCommand(Reply(501, f"Syntax: {syntax}", "5.1.7" if prefix == "FROM:" else "5.1.3"))
    rest = text[path.end() :]
    if not rest:
        return path[0], []
    if rest[0] not in " \t":
        raise BadCommand(Reply(501, f"Syntax: {syntax}", "5.5.4"))
    parameters: list[tuple[str, str]] = []
    seen = set()
    for word in rest.split():
        match = _PARAMETER.fullmatch(word)
        keyword = match[1].upper() if match is not None else ""
        if match is None or keyword in seen:
            raise BadCommand(Reply(501, "A bad or repeated parameter", "5.5.4"))
        seen.add(keyword)
        parameters.append((keyword, match[2] or ""))
    return path[0], parameters


def _address(path: str, *, utf8: bool, sender: bool) -> str:
    try:
        return parse_path(path, utf8=utf8, null=sender, postmaster=not sender)
    except NeedsUtf8:
        raise BadCommand(Reply(553, "An address beyond ASCII needs SMTPUTF8", "5.6.7")) from None
    except BadAddress as error:
        # 5.1.7 and 5.1.3 are the sender's and the recipient's address syntax (RFC 3463, section 3.2).
        raise BadCommand(Reply(501, f"Bad address: {error}", "5.1.7" if sender else "5.1.3")) from None


def _auth(value: str) -> str:
    if value == "<>":
        return ""
    try:
        decoded = decode_xtext(value)
    except ValueError:
        raise _bad_parameter("AUTH") from None
    if not decoded or not decoded.isprintable() or len(decoded) > MAX_ORIGINAL_RECIPIENT:
        raise _bad_parameter("AUTH")
    return decoded


def _notify(value: str) -> int:
    words = value.upper().split(",")
    if any(word not in NOTIFY for word in words) or len(set(words)) != len(words):
        raise _bad_parameter("NOTIFY")
    if "NEVER" in words and len(words) > 1:
        raise _bad_parameter("NOTIFY")
    return sum(NOTIFY[word] for word in words)


def _is_original_recipient(value: str) -> bool:
    kind, semicolon, address = value.partition(";")
    if not semicolon or not address or len(value) > MAX_ORIGINAL_RECIPIENT or not _ADDRESS_TYPE.fullmatch(kind):
        return False
    if kind.lower() == "utf-8":
        return bool(_UTF8_ADDRESS.fullmatch(address)) and address.isprintable()
    return _is_printable_xtext(address)


def _is_printable_xtext(value: str) -> bool:
    """Whether `value` is xtext of printable characters: it is shown in reports, so no line may hide in it."""
    try:
        return all(" " <= character <= "~" for character in decode_xtext(value))
    except ValueError:
        return False


def _no_value(keyword: str, value: str) -> None:
    if value:
        raise _bad_parameter(keyword)


def _bad_parameter(keyword: str) -> BadCommand:
    return BadCommand(Reply(501, f"Bad {keyword}", "5.5.4"))


def _unknown_parameter() -> BadCommand:
    return BadCommand(Reply(555, "A parameter that is not known here", "5.5.4"))
