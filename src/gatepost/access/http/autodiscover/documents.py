"""Autodiscover's documents: facts in, bytes out. Plain XML for Outlook and ActiveSync, SOAP, JSON (version 2).

Schemas: MS-OXDSCLI (Outlook), MS-ASCMD section 2.2.1.1 (ActiveSync), MS-OXWSADISC (SOAP).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from gatepost.access.http.autodiscover.urls import Service, Urls
from gatepost.organization.model import Endpoint, Protocol, TlsMode
from gatepost.wire.autodiscover import Schema

INVALID_REQUEST = (600, "Invalid Request")
NO_PROVIDER = (601, "Provider is not available")
UNKNOWN_ADDRESS = (500, "The email address can't be found.")
"""Errors of the plain forms: number and words."""

_XML = '<?xml version="1.0" encoding="utf-8"?>'
_PLAIN = "http://schemas.microsoft.com/exchange/autodiscover/responseschema/2006"
_SOAP = "http://schemas.microsoft.com/exchange/2010/Autodiscover"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


@dataclass(frozen=True, slots=True)
class Account:
    """Whose settings they are. `address` is the one that was asked for, `login` the name to sign in with."""

    address: str
    login: str
    urls: Urls


# --- plain XML


def outlook(account: Account) -> bytes:
    """Settings in Outlook's schema: IMAP and POP3, then the sections that hold the web services' URLs."""
    user = (
        f"<User><DisplayName>{escape(account.login)}</DisplayName>"
        f"<AutoDiscoverSMTPAddress>{escape(account.address)}</AutoDiscoverSMTPAddress></User>"
    )
    urls = account.urls
    parts = [
        *(_mail_section(account, endpoint) for endpoint in urls.mail if endpoint.tls is TlsMode.IMPLICIT),
        _exchange_section("EXCH", urls.name, urls.internal),
        _exchange_section("EXPR", urls.name, urls.external),
        _web_section(urls),
    ]
    return _outlook_response(
        f"{user}<Account><AccountType>email</AccountType><Action>settings</Action>{''.join(parts)}</Account>"
    )


def outlook_redirect(url: str) -> bytes:
    """Outlook's schema: ask another site's Autodiscover."""
    return _outlook_response(
        "<Account><AccountType>email</AccountType><Action>redirectUrl</Action>"
        f"<RedirectUrl>{escape(url)}</RedirectUrl></Account>"
    )


def mobile_sync(account: Account) -> bytes | None:
    """Settings in ActiveSync's schema; None where the mailbox has no ActiveSync."""
    url = account.urls.external.get(Service.ACTIVESYNC)
    if url is None:
        return None
    return _mobile_response(
        account,
        "<Settings><Server><Type>MobileSync</Type>"
        f"<Url>{escape(url)}</Url><Name>{escape(url)}</Name></Server></Settings>",
    )


def mobile_sync_error(account: Account, message: str) -> bytes:
    """ActiveSync's schema: the mailbox is known, but nothing can be said (status 2: protocol error)."""
    return _mobile_response(account, f"<Error><Status>2</Status><Message>{escape(message)}</Message></Error>")


def plain_error(error: tuple[int, str], time: str) -> bytes:
    """An error of either plain form. `time` is `HH:MM:SS.ffffff`."""
    number, words = error
    return (
        f'{_XML}<Autodiscover xmlns="{_PLAIN}"><Response><Error Time="{escape(time)}" Id="0">'
        f"<ErrorCode>{number}</ErrorCode><Message>{escape(words)}</Message><DebugData/></Error></Response>"
        "</Autodiscover>\n"
    ).encode()


def _outlook_response(inner: str) -> bytes:
    return (
        f'{_XML}<Autodiscover xmlns="{_PLAIN}"><Response xmlns="{Schema.OUTLOOK.value}">{inner}</Response>'
        "</Autodiscover>\n"
    ).encode()


def _mobile_response(account: Account, action: str) -> bytes:
    return (
        f'{_XML}<Autodiscover xmlns="{_PLAIN}"><Response xmlns="{Schema.MOBILE_SYNC.value}"><Culture>en:us</Culture>'
        f"<User><DisplayName>{escape(account.login)}</DisplayName>"
        f"<EMailAddress>{escape(account.address)}</EMailAddress></User><Action>{action}</Action></Response>"
        "</Autodiscover>\n"
    ).encode()


def _mail_section(account: Account, endpoint: Endpoint) -> str:
    return (
        f"<Protocol><Type>{endpoint.protocol.value.upper()}</Type><Server>{escape(account.urls.name)}</Server>"
        f"<Port>{endpoint.port}</Port><DomainRequired>off</DomainRequired>"
        f"<LoginName>{escape(account.login)}</LoginName><SPA>off</SPA><SSL>on</SSL><AuthRequired>on</AuthRequired>"
        "</Protocol>"
    )


def _exchange_section(kind: str, name: str, urls: Mapping[Service, str]) -> str:
    """`EXCH` for clients inside, `EXPR` for clients outside. There is no RPC: the section holds URLs alone."""
    if Service.EWS not in urls:
        return ""
    named = {
        "ASUrl": urls.get(Service.AVAILABILITY, urls[Service.EWS]),
        "EwsUrl": urls[Service.EWS],
        "EcpUrl": urls.get(Service.ECP),
        "OABUrl": urls.get(Service.OAB),
    }
    lines = "".join(f"<{tag}>{escape(url)}</{tag}>" for tag, url in named.items() if url)
    return (
        f"<Protocol><Type>{kind}</Type><Server>{escape(name)}</Server><SSL>On</SSL><AuthPackage>Basic</AuthPackage>"
        f"{lines}</Protocol>"
    )


def _web_section(urls: Urls) -> str:
    def place(tag: str, found: Mapping[Service, str]) -> str:
        url = found.get(Service.OWA)
        return f'<{tag}><OWAUrl AuthenticationMethod="Basic, Fba">{escape(url)}</OWAUrl></{tag}>' if url else ""

    inner = place("Internal", urls.internal) + place("External", urls.external)
    return f"<Protocol><Type>WEB</Type>{inner}</Protocol>" if inner else ""


# --- SOAP


def user_settings(answers: Iterable[str], message_id: str) -> bytes:
    """A GetUserSettings response with one of `user_response`, `user_redirect`, `user_error` for each user."""
    related = f"<a:RelatesTo>{escape(message_id)}</a:RelatesTo>" if message_id else ""
    return (
        f'{_XML}<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns:a="http://www.w3.org/2005/08/addressing">'
        f'<s:Header><a:Action s:mustUnderstand="1">{_SOAP}/Autodiscover/GetUserSettingsResponse</a:Action>{related}'
        f'</s:Header><s:Body><GetUserSettingsResponseMessage xmlns="{_SOAP}"><Response xmlns:i="{_XSI}">'
        f"<ErrorCode>NoError</ErrorCode><ErrorMessage/><UserResponses>{''.join(answers)}</UserResponses></Response>"
        "</GetUserSettingsResponseMessage></s:Body></s:Envelope>\n"
    ).encode()


def user_response(account: Account, wanted: Iterable[str]) -> str:
    """One user's settings; what cannot be said is listed under the errors."""
    settings, errors = [], []
    for name in dict.fromkeys(wanted):
        found = _setting(account, name)
        if found is not None:
            kind, inner = found
            settings.append(f'<UserSetting i:type="{kind}"><Name>{escape(name)}</Name>{inner}</UserSetting>')
        else:
            errors.append(
                "<UserSettingError><ErrorCode>SettingIsNotAvailable</ErrorCode>"
                "<ErrorMessage>This setting is not available.</ErrorMessage>"
                f"<SettingName>{escape(name)}</SettingName></UserSettingError>"
            )
    return _user("NoError", "No error.", "", "".join(errors), "".join(settings))


def user_redirect(url: str) -> str:
    """One user whose settings another site's Autodiscover has."""
    return _user("RedirectUrl", "Redirect to another site.", url)


def user_error(code: str, message: str) -> str:
    """One user who has no settings here, such as `InvalidUser`."""
    return _user(code, message)


def fault(message: str) -> bytes:
    """A SOAP 1.1 fault for a request that is not understood; its status is 500."""
    return (
        f'{_XML}<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>'
        f"<faultcode>s:Client</faultcode><faultstring>{escape(message)}</faultstring></s:Fault></s:Body></s:Envelope>\n"
    ).encode()


def _user(code: str, message: str, target: str = "", errors: str = "", settings: str = "") -> str:
    redirect = f"<RedirectTarget>{escape(target)}</RedirectTarget>" if target else '<RedirectTarget i:nil="true"/>'
    return (
        f"<UserResponse><ErrorCode>{code}</ErrorCode><ErrorMessage>{escape(message)}</ErrorMessage>{redirect}"
        f"<UserSettingErrors>{errors}</UserSettingErrors><UserSettings>{settings}</UserSettings></UserResponse>"
    )


# --- SOAP: single settings, each as its type in the schema and its content

_Typed = tuple[str, str]


def _text(value: str | None) -> _Typed | None:
    return ("StringSetting", f"<Value>{escape(value)}</Value>") if value else None


def _web_client(url: str | None) -> _Typed | None:
    if not url:
        return None
    inner = f"<AuthenticationMethods>Basic, Fba</AuthenticationMethods><Url>{escape(url)}</Url>"
    return "WebClientUrlCollectionSetting", f"<WebClientUrls><WebClientUrl>{inner}</WebClientUrl></WebClientUrls>"


def _connections(account: Account, protocol: Protocol) -> _Typed | None:
    inner = "".join(
        f"<ProtocolConnection><EncryptionMethod>{'SSL' if e.tls is TlsMode.IMPLICIT else 'TLS'}</EncryptionMethod>"
        f"<Hostname>{escape(account.urls.name)}</Hostname><Port>{e.port}</Port></ProtocolConnection>"
        for e in account.urls.mail
        if e.protocol is protocol
    )
    return (
        ("ProtocolConnectionCollectionSetting", f"<ProtocolConnections>{inner}</ProtocolConnections>")
        if inner
        else None
    )


_URL_SETTINGS: dict[str, Service | Protocol] = {
    "EwsUrl": Service.EWS, "EcpUrl": Service.ECP, "OABUrl": Service.OAB,
    "WebClientUrls": Service.OWA, "Imap4Connections": Protocol.IMAP, "Pop3Connections": Protocol.POP3,
}  # fmt: skip
"""Settings that there are twice, as `Internal…` and `External…`."""


def _setting(account: Account, name: str) -> _Typed | None:
    """One setting, or None where it is not to be had: an unknown one, or one of another system's parts."""
    urls = account.urls
    if name in {"UserDisplayName", "AutoDiscoverSMTPAddress"}:
        return _text(account.login if name == "UserDisplayName" else account.address)
    if name.startswith("ExternalMailboxServer"):
        if Service.EWS not in urls.external:
            return None
        known = {"": urls.name, "RequiresSSL": "True", "AuthenticationMethods": "Basic"}
        return _text(known.get(name.removeprefix("ExternalMailboxServer")))
    where = {"Internal": urls.internal, "External": urls.external}.get(name[:8])
    kind = _URL_SETTINGS.get(name[8:])
    if where is None or kind is None:
        return None
    if isinstance(kind, Protocol):
        return _connections(account, kind)
    return _web_client(where.get(kind)) if kind is Service.OWA else _text(where.get(kind))


# --- JSON


def json_found(protocol: str, url: str) -> bytes:
    """Where a protocol is served."""
    return json.dumps({"Protocol": protocol, "Url": url}).encode()


def json_error(code: str, message: str) -> bytes:
    """Why there is no answer."""
    return json.dumps({"ErrorCode": code, "ErrorMessage": message}).encode()
