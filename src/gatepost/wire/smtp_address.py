r"""Mail addresses of SMTP envelopes (RFC 5321, section 4.1.2; beyond ASCII: RFC 6531, section 3.3).

An address is kept in one form: `local@domain` without brackets and source route, its local part quoted only where it
must be. So `"joe"@x` and `joe@x` are one address, and `"a b"@x` goes out as it came in. The local part keeps its case.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from gatepost.organization.addresses import is_host_name

MAX_LOCAL = 64
"""Octets of a local part as written, quotes included (RFC 5321, section 4.5.3.1.1)."""
MAX_DOMAIN = 255
MAX_PATH = 256
"""Octets with the brackets (RFC 5321, section 4.5.3.1.3)."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]++"
_DOT_STRING = re.compile(rf"{_ATOM}(?:\.{_ATOM})*+")
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~\x80-\U0010ffff]|\\[ -~])*+)"')
_ROUTE = re.compile(r"@[^\s:,\"<>]++(?:,@[^\s:,\"<>]++)*+:")
_PAIR = re.compile(r"\\(.)")
_TO_ESCAPE = re.compile(r'(["\\])')
_PLAIN = re.compile(
    r"(?=.{1,254}$)(?=[^@]{1,64}@)[A-Za-z0-9_+=-]++(?:\.[A-Za-z0-9_+=-]++)*+"
    r"@(?:[A-Za-z0-9][A-Za-z0-9-]{0,61}[A-Za-z0-9]\.|[A-Za-z0-9]\.)*+[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]"
)
"""Most addresses: what matches is right, and the slow way need not look."""
_DOTS = str.maketrans("\u3002\uff0e\uff61", "...")
"""What UTS 46 takes for a dot."""


class BadAddress(ValueError):
    """The text is no address. The text of the error says why, in a few words."""


class NeedsUtf8(BadAddress):
    """The address goes beyond ASCII, and SMTPUTF8 was not asked for."""


def parse_path(path: str, *, utf8: bool = False, null: bool = False, postmaster: bool = False) -> str:
    """The address within the brackets of `path`; empty for `<>`, which `null` allows (a reverse path).

    `postmaster`: `<Postmaster>` without a domain is an address too (RFC 5321, section 4.1.1.3). `utf8`: SMTPUTF8 was
    asked for. A source route is dropped. Raises `BadAddress`.
    """
    if len(path) < 2 or path[0] != "<" or path[-1] != ">":
        raise BadAddress("no brackets around the address")
    inner = path[1:-1]
    if not inner:
        if null:
            return ""
        raise BadAddress("empty address")
    if _PLAIN.fullmatch(inner):
        return inner
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH:
        raise BadAddress("address too long")
    if inner[0] == "@":
        route = _ROUTE.match(inner)
        if route is None:
            raise BadAddress("bad source route")
        inner = inner[route.end() :]
    if postmaster and inner.lower() == "postmaster":
        return inner
    return parse_address(inner, utf8=utf8)


def parse_address(text: str, *, utf8: bool = False) -> str:
    """`text` (`local@domain`) in its one form. Raises `BadAddress`."""
    if _PLAIN.fullmatch(text):
        return text
    if not text.isascii():
        if not utf8:
            raise NeedsUtf8("an address beyond ASCII")
        _check_unicode(text)
    local, domain = split_address(text)
    written = text[: len(text) - len(domain) - 1]
    if len(written.encode()) > MAX_LOCAL:
        raise BadAddress("local part too long")
    domain = domain.removesuffix(".")
    normal_domain(domain)
    return f"{quote_local(local)}@{domain}"


def split_address(address: str) -> tuple[str, str]:
    """Local part, unquoted, and domain as it is written. Without a domain (`postmaster`) that is empty.

    Raises `BadAddress` when the local part is not well-formed; the domain is not looked at.
    """
    if address.startswith('"'):
        quoted = _QUOTED.match(address)
        if quoted is None:
            raise BadAddress("bad quoted local part")
        local, rest = _PAIR.sub(r"\1", quoted[1]), address[quoted.end() :]
        if not local:
            raise BadAddress("empty local part")
        if rest[:1] not in {"@", ""}:
            raise BadAddress("text after the quoted local part")
        return local, rest[1:]
    local, _, domain = address.partition("@")
    if not _DOT_STRING.fullmatch(local):
        raise BadAddress("bad local part")
    return local, domain


def quote_local(local: str) -> str:
    """An unquoted local part as it is written in an address."""
    if _DOT_STRING.fullmatch(local):
        return local
    return '"' + _TO_ESCAPE.sub(r"\\\1", local) + '"'


@lru_cache(maxsize=4096)
def domain_of(address: str) -> str:
    """The domain of an address in its one form (see `normal_domain`); empty for `postmaster` and the null sender.

    Raises `BadAddress`.
    """
    domain = split_address(address)[1] if address else ""
    return normal_domain(domain) if domain else ""


@lru_cache(maxsize=4096)
def normal_domain(domain: str) -> str:
    """A domain to compare and look up: lower case, A-labels (RFC 5890), without the final dot.

    Literals are `[192.0.2.1]` and `[ipv6:2001:db8::1]`. Raises `BadAddress`.
    """
    if domain.startswith("["):
        return _literal(domain)
    ascii_domain = domain.lower() if domain.isascii() else _a_labels(domain)
    ascii_domain = ascii_domain.removesuffix(".")
    if not ascii_domain or len(ascii_domain) > MAX_DOMAIN or not is_host_name(ascii_domain):
        raise BadAddress("bad domain")
    return ascii_domain


def literal_address(domain: str) -> str:
    """The IP address in a normal domain that is a literal; empty when it is a name."""
    return domain[1:-1].removeprefix("ipv6:") if domain.startswith("[") else ""


def _literal(domain: str) -> str:
    inner = domain[1:-1] if domain.endswith("]") else ""
    try:
        if inner[:5].lower() == "ipv6:":
            address = IPv6Address(inner[5:])
            if address.scope_id:
                raise BadAddress("bad address literal")
            return f"[ipv6:{address}]"
        return f"[{IPv4Address(inner)}]"
    except AddressValueError:
        raise BadAddress("bad address literal") from None


def _a_labels(domain: str) -> str:
    """A domain with U-labels as DNS has it: mapped as in UTS 46, without its transitional rules."""
    # One by one: Python's own lower() of a word makes a final sigma of the last one.
    mapped = unicodedata.normalize("NFKC", "".join(character.lower() for character in domain.translate(_DOTS)))
    labels = []
    for label in mapped.split("."):
        if not label.isascii():
            if any(unicodedata.category(c)[0] not in "LMN" and c not in "-\u00b7\u0375\u30fb" for c in label):
                raise BadAddress("bad domain")
            if unicodedata.category(label[0])[0] == "M" or label[2:4] == "--":
                raise BadAddress("bad domain")
            label = "xn--" + label.encode("punycode").decode("ascii")
        labels.append(label)
    return ".".join(labels)


def _check_unicode(text: str) -> None:
    """Raise `BadAddress` for what must not be in an address though it is beyond ASCII: controls, surrogates."""
    if any(unicodedata.category(character) in {"Cc", "Cs", "Cn", "Zl", "Zp"} for character in text):
        raise BadAddress("a control character")
