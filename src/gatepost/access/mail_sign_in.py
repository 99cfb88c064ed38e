"""How a user is signed in at a mailbox server, and what that server is told of the client and of the database."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gatepost.directory.kerberos_port import KerberosOnward, NoTicket, service_of
from gatepost.directory.port import User
from gatepost.organization.model import ClientAddress, Endpoint, Protocol, Role, Server, SignInForm, TlsMode, Version
from gatepost.peers.login_token import login_token
from gatepost.wire.events import BackSignIn, ClientFacts, Credentials, SaslDialogue
from gatepost.wire.imap_front import ImapFront
from gatepost.wire.pop3_front import Pop3Front
from gatepost.wire.submission_front import SubmissionFront

_TOLD = frozenset({ClientAddress.ID, ClientAddress.XCLIENT, ClientAddress.XCLIENT_LOGIN})
"""Ways that tell the server of the client within its protocol."""

MailFront = ImapFront | Pop3Front | SubmissionFront


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a front machine heard of its client that a later sign-in at another server repeats."""

    ttl: int
    client_id: tuple[tuple[str, str], ...]


def is_front_end(server: Server) -> bool:
    """Whether `server` may hand a session on to yet another: one like ourselves."""
    return Role.CLIENT_ACCESS in server.roles and server.version >= Version.MODERN


def with_epoch(facts: ClientFacts, server: Server, database: str, epoch: int) -> ClientFacts:
    """`facts` with the database's epoch, if the server wants to know it (SPEC A3)."""
    if not (server.sign_in.send_epoch and database and epoch):
        return facts
    return replace(facts, database=database, epoch=epoch)


def lacks_password(server: Server, endpoint: Endpoint, credentials: Credentials) -> bool:
    """Whether `server` wants the user's own password, which nobody knows of who came by a ticket, a token and the like.

    A token that is meant for the server will do.
    """
    return (
        not credentials.password
        and not takes_token(server, credentials)
        and server.sign_in.form is SignInForm.USER
        and endpoint.client_address is not ClientAddress.XCLIENT_LOGIN
    )


async def ticket_for(
    onward: KerberosOnward | None, protocol: Protocol, server: Server, endpoint: Endpoint, user: User
) -> SaslDialogue | None:
    """What shows `server` a ticket of the user's, one for each attempt; None where it wants none. Raises `NoTicket`."""
    if server.sign_in.form is not SignInForm.KERBEROS or endpoint.client_address is ClientAddress.XCLIENT_LOGIN:
        return None
    if onward is None:
        raise NoTicket(f"configuration: {server.name} wants tickets, and there is no [front_end.kerberos]")
    return await onward.dialogue(user.name, service_of(protocol, server))


def takes_token(server: Server, credentials: Credentials) -> bool:
    """Whether the user's own token may be shown to `server`: only where it was issued for it (RFC 6750 section 5.2)."""
    audience = server.sign_in.token_audience
    return bool(credentials.token and audience) and audience in credentials.audiences


def back_sign_in(
    server: Server,
    endpoint: Endpoint,
    user: User,
    credentials: Credentials,
    facts: ClientFacts | None,
    front: MailFront | Introduction,
    dialogue: SaslDialogue | None = None,
) -> BackSignIn:
    """How to sign `user` in at `server`: as configured, with the user's own credentials, a master user's or ours.

    Where it wants a ticket, `dialogue` shows it (`ticket_for`).
    """
    how = server.sign_in
    told = facts if endpoint.client_address in _TOLD else None
    left = front.ttl - 1 if is_front_end(server) else None
    starttls = endpoint.tls is TlsMode.STARTTLS
    login = user.server_login
    mechanism, name, password, authorization, token = "LOGIN", login, credentials.password, "", ""
    if how.form is SignInForm.MASTER_NAME:
        name, password = f"{login}{how.separator}{how.master_user}", how.master_password
    elif how.form is SignInForm.MASTER_AUTHZID:
        mechanism, name, password, authorization = "PLAIN", how.master_user, how.master_password, login
    elif how.form is SignInForm.KERBEROS:
        mechanism, password = "GSSAPI", ""
    elif how.form is SignInForm.ASSERTION:
        mechanism, password, token = "OAUTHBEARER", "", login_token(server, login)
    elif takes_token(server, credentials):
        mechanism, password, token = credentials.mechanism, "", credentials.token
    return BackSignIn(
        mechanism=mechanism,
        user=name,
        password=password,
        authorization_id=authorization,
        token=token,
        starttls=starttls,
        pipelined=how.pipelined and dialogue is None,
        client=told,
        ttl=left,
        client_id=front.client_id,
        utf8=front.utf8 if isinstance(front, Pop3Front) else False,
        helo=front.helo if isinstance(front, SubmissionFront) else "",
        login=login if endpoint.client_address is ClientAddress.XCLIENT_LOGIN else "",
        extensions=front.extensions if isinstance(front, SubmissionFront) else (),
        dialogue=dialogue,
    )
