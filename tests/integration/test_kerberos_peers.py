"""Front ends that know each other by Kerberos instead of the caller's certificate (SPEC C11), with a real realm."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest
from doors import Servers, missing
from onward_kit import Onward, patiently
from peers_stage import ALPN, Peers

from gatepost.access.end_point_binding import end_point_binding
from gatepost.lab.servers.gatepost import Gatepost
from gatepost.lab.servers.process import ServerMissing, require_program
from gatepost.lab.servers.samba import REALM
from gatepost.lab.toml_text import Table
from gatepost.peers.assertion import sealed_assertion

ACCOUNTS = {"CAS-01": "cas-41", "CAS-02": "cas-42"}
"""CAS-03 has none: it is known by its certificate."""
SERVICE = f"HTTP/cas-02.contoso.com@{REALM}"

_SHOW = """\
import base64, sys
import gssapi
from gssapi.raw import ChannelBindings
principal, keytab, cache, service, binding, payload = sys.argv[1:]
kind, krb5 = gssapi.NameType.kerberos_principal, gssapi.MechType.kerberos
store = {"client_keytab": "FILE:" + keytab, "ccache": "MEMORY:x"} if keytab else {"ccache": "FILE:" + cache}
credentials = gssapi.Credentials(name=gssapi.Name(principal, kind), usage="initiate", mechs=[krb5], store=store)
bound = ChannelBindings(application_data=bytes.fromhex(binding)) if binding else None
context = gssapi.SecurityContext(name=gssapi.Name(service, kind), creds=credentials, usage="initiate", mech=krb5,
    flags=gssapi.RequirementFlag.integrity, channel_bindings=bound)
token = context.step()
print(base64.b64encode(token).decode(), base64.b64encode(context.get_signature(payload.encode())).decode())
"""


class KerberosPeers(Peers):
    """CAS-01 and CAS-02 with accounts of the realm."""

    def __init__(self, servers: Servers, onward: Onward) -> None:
        self.onward = onward
        super().__init__(servers, "kerberos-peers", ("CAS-01", "CAS-02", "CAS-03"))

    def principal(self, name: str) -> str:
        return f"{ACCOUNTS[name]}@{REALM}" if name in ACCOUNTS else ""

    def more(self, name: str) -> Table:
        if name not in ACCOUNTS:
            return {}
        keytab = self.onward.peer(ACCOUNTS[name])
        return {"kerberos": {"keytab": str(keytab), "realms": {REALM: "contoso.com"}}}

    # --- what somebody else shows CAS-02

    def show(
        self, principal: str, payload: bytes, *, keytab: str = "", user: str = "", service: str = SERVICE,
        binding: bytes | None = None, clock: str = "",
    ) -> tuple[str, bytes]:  # fmt: skip
        """A token and its context's seal, made in another process with this key or ticket cache."""
        try:
            before = [require_program("faketime", ("faketime",)), "-f", clock] if clock else []
        except ServerMissing as error:
            missing(error)
        bound = end_point_binding(self.certificate()) if binding is None else binding
        realm = self.onward.realm
        cache = str(realm.cache(user)) if user else ""
        argv = [*before, sys.executable, "-c", _SHOW, principal, keytab, cache, service, bound.hex(), payload.decode()]
        done = subprocess.run(argv, env=realm.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        token, seal = done.stdout.split()
        return token, base64.b64decode(seal)

    def certificate(self, name: str = "CAS-02") -> bytes:
        with self.connect(name) as tls:
            found = tls.getpeercert(binary_form=True)
        assert found is not None
        return found

    def connect(self, name: str) -> ssl.SSLSocket:
        """A TLS connection of somebody without a certificate."""
        context = ssl.create_default_context(cafile=str(self.pki / "organization-ca.crt"))
        context.set_alpn_protocols([ALPN])
        plain = socket.create_connection(self.place(name, "peer"), timeout=20)
        return context.wrap_socket(plain, server_hostname=f"{name.lower()}.contoso.com")

    def ask(self, *lines: str) -> str:
        """The whole answer of CAS-02 to a request with these header lines."""
        head = "\r\n".join(["GET /owa/ HTTP/1.1", "Host: mail.contoso.com", "Connection: close", *lines, "", ""])
        with self.connect("CAS-02") as tls:
            tls.sendall(head.encode())
            got = b""
            while piece := tls.recv(65536):
                got += piece
        return got.decode()

    def explain(self, user: str) -> str:
        """What `gatepost explain` says of it at CAS-01."""
        return self.front_ends["CAS-01"].command("explain", f"{user}@contoso.com", "--protocol", "https", status=None)

    def refused(self, words: str, front_end: str = "CAS-02", event: str = "peer.refused") -> bool:
        """Whether the log says so, or does soon."""
        return refused(self.front_ends[front_end], words, event)


def refused(process: Gatepost, words: str, event: str) -> bool:
    deadline = time.monotonic() + 20
    while not any(words in str(entry.get("reason")) for entry in process.events(event)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def payload(issuer: str = "CAS-01", user: str = "bob@contoso.com", audience: str = "CAS-02") -> bytes:
    now = time.time()
    claims = {
        "iss": issuer, "aud": audience, "sub": user, "rid": "r-1", "jti": secrets.token_hex(8), "iat": now,
        "exp": now + 60, "pv": 1, "via": [issuer],
    }  # fmt: skip
    return msgspec.json.encode(claims)


def lines(token: str, said: bytes, seal: bytes) -> tuple[str, str]:
    assertion = sealed_assertion(said, seal).decode()
    return f"Authorization: Negotiate {token}", f"X-Gatepost-Assertion: {assertion}"


@pytest.fixture(scope="module")
def peers(servers: Servers, onward: Onward) -> Iterator[KerberosPeers]:
    os.environ["KRB5_CONFIG"] = str(onward.realm.server.krb5_conf)
    stage = KerberosPeers(servers, onward)
    yield stage
    stage.stop()


def key(peers: KerberosPeers, account: str = "cas-41") -> str:
    return str(peers.onward.peer(account))


def bob(peers: KerberosPeers) -> int:
    """The status of a request of bob's at CAS-01, once more where he is told to come again."""
    return patiently(lambda: peers.visit("CAS-01", "bob").status, lambda status: status != 503)


def test_a_request_crosses_by_kerberos(peers: KerberosPeers) -> None:
    """bob's mailbox is in the site of CAS-02, who takes CAS-01 by its account."""
    answer = patiently(lambda: peers.visit("CAS-01", "bob"), lambda found: found.status != 503)
    assert answer.status == 200, peers.front_ends["CAS-01"].log_tail()
    assert answer.headers["x-beserver"] == "MBX-32"
    said = peers.explain("bob")
    assert f"signs in there by Kerberos, as cas-41@{REALM} to {SERVICE}" in said, said


def test_front_ends_without_an_account_are_known_by_certificates(peers: KerberosPeers) -> None:
    assert peers.visit("CAS-01", "carol").status == 200
    assert "signs in there by the peer certificate, since CAS-03 has no kerberos_principal" in peers.explain("carol")


def test_a_sealed_request_of_a_front_end_is_believed(peers: KerberosPeers) -> None:
    said = payload()
    token, seal = peers.show(peers.principal("CAS-01"), said, keytab=key(peers))
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 200 ")


def test_a_replayed_request_is_refused(peers: KerberosPeers) -> None:
    said = payload()
    token, seal = peers.show(peers.principal("CAS-01"), said, keytab=key(peers))
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 200 ")
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 401 ")
    assert peers.refused("replay")


def test_another_user_cannot_be_put_into_a_stolen_request(peers: KerberosPeers) -> None:
    """The seal is that of the ticket's context, whose key the thief has not."""
    said = payload()
    token, seal = peers.show(peers.principal("CAS-01"), said, keytab=key(peers))
    other = said.replace(b"bob@", b"eve@")
    assert peers.ask(*lines(token, other, seal)).startswith("HTTP/1.1 403 ")
    assert peers.refused("not sealed by whoever has shown the ticket")


@pytest.mark.parametrize("binding", [b"", b"tls-server-end-point:" + bytes(32)])
def test_a_ticket_that_was_shown_to_another_host_is_refused(peers: KerberosPeers, binding: bytes) -> None:
    """Somebody in between has another certificate: the ticket is bound to it, or to none."""
    said = payload()
    token, seal = peers.show(peers.principal("CAS-01"), said, keytab=key(peers), binding=binding)
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 401 ")
    assert peers.refused("not bound to this TLS connection" if not binding else "channel bindings")


def test_a_users_ticket_is_no_front_ends(peers: KerberosPeers) -> None:
    said = payload()
    token, seal = peers.show(f"alice@{REALM}", said, user="alice")
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 403 ")
    assert peers.refused(f"alice@{REALM} is the kerberos_principal of no client access server")


def test_an_account_of_the_realm_is_not_enough(peers: KerberosPeers) -> None:
    """cas-43 is a machine of the realm, and no server of the organization."""
    said = payload()
    token, seal = peers.show(f"cas-43@{REALM}", said, keytab=key(peers, "cas-43"))
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 403 ")
    assert peers.refused(f"cas-43@{REALM}")


def test_one_front_end_does_not_speak_for_another(peers: KerberosPeers) -> None:
    said = payload(issuer="CAS-03")
    token, seal = peers.show(peers.principal("CAS-01"), said, keytab=key(peers))
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 403 ")
    assert peers.refused("made by another front end")


def test_a_ticket_for_another_service_is_refused(peers: KerberosPeers) -> None:
    said = payload()
    other = f"HTTP/cas-43.contoso.com@{REALM}"
    token, seal = peers.show(peers.principal("CAS-01"), said, keytab=key(peers), service=other)
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 401 ")
    assert peers.refused("another service: HTTP/cas-43.contoso.com")


def test_a_clock_that_differs(peers: KerberosPeers) -> None:
    """The ticket was got at the right time; whoever shows it is an hour behind."""
    realm = peers.onward.realm
    cache = realm.cache("cas-41-long")
    realm.server.kinit("cas-41", "Onward-pw1", cache)
    said = payload()
    argv = ["kvno", "-c", f"FILE:{cache}", SERVICE]
    assert subprocess.run(argv, env=realm.environment, capture_output=True, timeout=60).returncode == 0
    token, seal = peers.show(peers.principal("CAS-01"), said, user="cas-41-long", clock="+20m")
    assert peers.ask(*lines(token, said, seal)).startswith("HTTP/1.1 401 ")
    assert peers.refused("Clock skew too great")


def test_basic_and_nothing_are_refused(peers: KerberosPeers) -> None:
    assert peers.ask("Authorization: Basic Ym9iOmJwdw==").startswith("HTTP/1.1 403 ")
    assert peers.refused("Basic between front ends is refused")
    bare = peers.ask()
    assert bare.startswith("HTTP/1.1 401 ")
    assert "WWW-Authenticate: Negotiate\r\n" in bare


def test_a_peers_new_key_counts_without_a_restart(peers: KerberosPeers) -> None:
    """Old and new key in one keytab: nobody notices. Only the new one: the next request has a new ticket."""
    server, keytab = peers.onward.realm.server, peers.onward.peer("cas-42")
    names = ("cas-42", "HTTP/cas-02.contoso.com")
    assert bob(peers) == 200
    server.set_password("cas-42", "Rolled-pw1", keytab, names)
    assert bob(peers) == 200
    only = keytab.with_suffix(".new")
    server.set_password("cas-42", "Rolled-pw2", only, names)
    only.replace(keytab)
    assert peers.visit("CAS-01", "bob").status in (200, 503)
    assert bob(peers) == 200


def test_without_the_realm_those_with_tickets_go_on(peers: KerberosPeers) -> None:
    """CAS-01 has its ticket for CAS-02 in memory."""
    server = peers.onward.realm.server
    assert bob(peers) == 200
    server.stop()
    try:
        assert bob(peers) == 200
    finally:
        server.start()
        server.wait_ready()
