"""How a front end signs in where a decision leads, for `gatepost explain`, as far as Kerberos has a part in it."""

from __future__ import annotations

from gatepost.directory.kerberos_port import peer_service, service_of
from gatepost.organization.model import ClientAddress, HttpSignIn, Organization, Protocol, SignInForm
from gatepost.routing.decision import Target


def sign_in_words(organization: Organization, front_end: str, protocol: Protocol, target: Target) -> str:
    """In words; empty where Kerberos has no part in it."""
    server, own = organization.servers[target.server], organization.servers[front_end]
    if target.peer:
        if own.kerberos_principal and server.kerberos_principal:
            return f"by Kerberos, as {own.kerberos_principal} to {peer_service(server, target.endpoint)}"
        if own.kerberos_principal or server.kerberos_principal:
            without = server.name if own.kerberos_principal else own.name
            return f"by the peer certificate, since {without} has no kerberos_principal"
        return ""
    if protocol is Protocol.HTTPS:
        wants = server.sign_in.http is HttpSignIn.KERBEROS
    else:
        by_name = target.endpoint.client_address is ClientAddress.XCLIENT_LOGIN
        wants = server.sign_in.form is SignInForm.KERBEROS and not by_name
    return f"by Kerberos, with a ticket of the user for {service_of(protocol, server)}" if wants else ""
