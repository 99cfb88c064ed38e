"""IMAP and POP3 through the front door to real Dovecots and a real Cyrus."""

from __future__ import annotations

import imaplib
import poplib
import socket
import ssl
import time
import warnings
from collections.abc import Callable

import pytest
from doors import FrontDoor, Servers

from gatepost.lab.servers.gatepost import LabUser

StartFrontDoor = Callable[..., FrontDoor]
NASTY = ['quo"te', "back\\slash", "per%cent *{5+}", "trail ", "ümlaut", "p\u20ac\U0001f511", "x" * 500]


def imap(door: FrontDoor, name: str = "imap") -> imaplib.IMAP4:
    """A client that has read the greeting; TLS is on where the endpoint or the caller's habit wants it."""
    host, port = door.addresses[name]
    if name == "imaps":
        return imaplib.IMAP4_SSL(host, port, ssl_context=door.client_context, timeout=15)
    client = imaplib.IMAP4(host, port, timeout=15)
    client.starttls(door.client_context)
    return client


def pop3(door: FrontDoor, name: str = "pop3") -> poplib.POP3:
    """Likewise."""
    host, port = door.addresses[name]
    if name == "pop3s":
        return poplib.POP3_SSL(host, port, context=door.client_context, timeout=15)
    client = poplib.POP3(host, port, timeout=15)
    client.stls(door.client_context)
    return client


def subject(client: imaplib.IMAP4) -> str:
    """The subject of the one message in the INBOX; it names the mailbox server."""
    client.select("INBOX", readonly=True)
    _, found = client.fetch("1", "(BODY[HEADER.FIELDS (SUBJECT)])")
    return repr(found)


@pytest.mark.parametrize("endpoint", ["imap", "imaps"])
@pytest.mark.parametrize(("user", "password", "server"), [("alice", "apw", "MBX-01"), ("bob", "bpw", "MBX-02")])
def test_each_user_finds_the_own_mailbox(
    front_door: FrontDoor, endpoint: str, user: str, password: str, server: str
) -> None:
    """By STARTTLS and implicit TLS; MBX-01 is reached in clear, MBX-02 by TLS behind a PROXY header."""
    with imap(front_door, endpoint) as client:
        client.login(user, password)
        assert f"{user} on {server}" in subject(client)


@pytest.mark.parametrize("endpoint", ["pop3", "pop3s"])
@pytest.mark.parametrize(("user", "password", "server"), [("alice", "apw", "MBX-01"), ("bob", "bpw", "MBX-02")])
def test_the_same_by_pop3(front_door: FrontDoor, endpoint: str, user: str, password: str, server: str) -> None:
    """USER and PASS, then the maildrop."""
    client = pop3(front_door, endpoint)
    client.user(user)
    client.pass_(password)
    assert client.stat()[0] == 1
    assert f"{user} on {server}" in repr(client.retr(1))
    client.quit()


@pytest.mark.parametrize("name", ["alice", "ALICE", "alice@contoso.com", "Alice.A@Contoso.COM"])
def test_every_way_to_write_a_name_is_one_user(front_door: FrontDoor, name: str) -> None:
    """Case, domain and alias (field case 78)."""
    with imap(front_door) as client:
        client.login(name, "apw")
        assert "alice on MBX-01" in subject(client)


def test_sasl_plain_with_and_without_initial_response(front_door: FrontDoor) -> None:
    """AUTHENTICATE PLAIN, in both forms."""
    with imap(front_door) as client:
        client.authenticate("PLAIN", lambda _: b"\0alice\0apw")
        assert "alice on MBX-01" in subject(client)
    with imap(front_door) as client:
        tag = client._new_tag().decode()
        client.send(f"{tag} AUTHENTICATE PLAIN AGFsaWNlAGFwdw==\r\n".encode())
        assert client.readline().startswith(tag.encode() + b" OK [CAPABILITY")
        client.state = "AUTH"


def test_the_capabilities_after_the_sign_in_are_the_servers_own(front_door: FrontDoor, servers: Servers) -> None:
    """Field case 47; and before it they are a lower bound of them."""
    server = servers.dovecot("MBX-01")
    with imaplib.IMAP4(server.address, server.ports.imap, timeout=15) as direct:
        direct.login("alice", "apw")
        direct._get_capabilities()
        own = set(direct.capabilities)
    with imap(front_door) as client:
        before = {c for c in client.capabilities if not c.startswith(("AUTH=", "STARTTLS", "LOGINDISABLED"))}
        client.login("alice", "apw")
        client._get_capabilities()
        assert set(client.capabilities) == own
        assert before - {"SASL-IR", "ID"} <= own


@pytest.mark.parametrize(("user", "password", "server"), [("alice", "apw", "MBX-01"), ("bob", "bpw", "MBX-02")])
def test_the_clients_address_travels(
    front_door: FrontDoor, servers: Servers, user: str, password: str, server: str
) -> None:
    """By ID and XCLIENT to MBX-01, by PROXY v2 to MBX-02; the client comes from an address of its own."""
    from_address = f"{servers.prefix}.200"
    for endpoint, lines in (("imaps", b"x LOGIN %s %s\r\n"), ("pop3s", b"USER %s\r\nPASS %s\r\n")):
        host, port = front_door.addresses[endpoint]
        with (
            socket.create_connection((host, port), timeout=15, source_address=(from_address, 0)) as plain,
            front_door.client_context.wrap_socket(plain, server_hostname=host) as client,
            client.makefile("rb") as reader,
        ):
            reader.readline()
            client.sendall(lines % (user.encode(), password.encode()))
            assert b"OK" in reader.readline()
            if endpoint == "pop3s":
                assert reader.readline().startswith(b"+OK")
        assert servers.dovecot(server).sign_in_with(user=user, rip=from_address)


def test_wrong_password_and_unknown_user_are_one_answer(front_door: FrontDoor) -> None:
    """Field case 71: same words."""
    answers = set()
    for name in ("alice", "nobody-here"):
        with imap(front_door) as client:
            with pytest.raises(imaplib.IMAP4.error) as refused:
                client.login(name, "nonsense")
            answers.add(str(refused.value))
    assert len(answers) == 1
    assert "AUTHENTICATIONFAILED" in answers.pop()


def test_no_password_in_clear(front_door: FrontDoor) -> None:
    """Refused before it is looked at, in words that are not those of a wrong password."""
    with imaplib.IMAP4(*front_door.addresses["imap"], timeout=15) as client:
        assert "LOGINDISABLED" in client.capabilities
        with pytest.raises(imaplib.IMAP4.error, match="PRIVACYREQUIRED"):
            client.login("alice", "apw")
    client = poplib.POP3(*front_door.addresses["pop3"], timeout=15)
    with pytest.raises(poplib.error_proto) as refused:
        client.user("alice")
    assert "[AUTH]" not in str(refused.value)
    client.close()


def test_cyrus_is_reached_by_starttls_and_authorization_identity(cyrus_door: FrontDoor) -> None:
    """The second kind of mailbox server: no `user*master`, no ID fields."""
    with imap(cyrus_door) as client:
        client.login("carol", "cpw")
        client._get_capabilities()
        assert "MAILBOX-REFERRALS" in client.capabilities
        before = int(client.select("INBOX")[1][0] or b"0")  # other tests have used this mailbox too
        assert client.append("INBOX", "", imaplib.Time2Internaldate(0), b"Subject: kept\r\n\r\nin Cyrus\r\n")[0] == "OK"
        client.select("INBOX", readonly=True)
        found = client.fetch(str(before + 1), "(BODY[HEADER.FIELDS (SUBJECT)])")[1]
        assert b"kept" in found[0][1]
    mail = pop3(cyrus_door)
    mail.user("carol")
    mail.pass_("cpw")
    assert mail.stat()[0] == before + 1
    mail.quit()


def test_nasty_passwords_pass_as_they_are(start_front_door: StartFrontDoor) -> None:
    """Field case 61: quotes, backslashes, blanks, literals' look-alikes, UTF-8. The master user signs in behind us."""
    users = [LabUser(f"alice{n}@contoso.com", p, database="DB01", login_at_server="alice") for n, p in enumerate(NASTY)]
    door = start_front_door(users=users)
    for number, password in enumerate(NASTY):
        with imap(door) as client:
            client.authenticate("PLAIN", lambda _, n=number, p=password: f"\0alice{n}\0{p}".encode())
            assert "alice on MBX-01" in subject(client)
        with imap(door) as client:
            client.send(f"x LOGIN alice{number} {{{len(password.encode())}+}}\r\n".encode())
            client.send(password.encode() + b"\r\n")
            assert client.readline().startswith(b"x OK")
            client.state = "AUTH"


def test_the_users_own_password_at_the_server(start_front_door: StartFrontDoor) -> None:
    """Form `user`: and when the server then refuses what was judged right, nobody hears of a wrong password."""

    def change(_: object, organization: dict[str, dict[str, dict[str, object]]]) -> None:
        for name in ("MBX-01", "MBX-02"):
            organization["servers"][name]["sign_in"] = {"form": "user"}

    users = [
        LabUser("alice@contoso.com", "apw", database="DB01", login_at_server="alice"),
        LabUser("bob@contoso.com", "other", database="DB01", login_at_server="bob"),
    ]
    door = start_front_door(change, users=users)
    with imap(door) as client:
        client.login("alice", "apw")
        assert "alice on MBX-01" in subject(client)
    with imap(door) as client, pytest.raises(imaplib.IMAP4.error, match="UNAVAILABLE"):
        client.login("bob", "other")
    mail = pop3(door)
    mail.user("bob")
    with pytest.raises(poplib.error_proto, match="SYS/TEMP"):
        mail.pass_("other")
    mail.close()


def test_a_database_moves_while_sessions_run(start_front_door: StartFrontDoor) -> None:
    """New sessions go to the new server at once, the old one goes on (SPEC B5, routing part)."""
    door = start_front_door()
    with imap(door) as before:
        before.login("alice", "apw")
        assert "on MBX-01" in subject(before)
        door.command("database", "activate", "DB01", "--server", "MBX-02")
        deadline = time.monotonic() + 1.0
        while True:
            with imap(door) as after:
                after.login("alice", "apw")
                found = subject(after)
            if "on MBX-02" in found or time.monotonic() > deadline:
                break
        assert "alice on MBX-02" in found
        assert "on MBX-01" in subject(before)


def test_a_mailbox_server_that_is_stopped_is_unavailable_and_back_again(
    start_front_door: StartFrontDoor, servers: Servers
) -> None:
    """Down, hung (SIGSTOP) and up: never "wrong password"; other users notice nothing."""
    import signal

    address = servers.address()
    with servers.new_dovecot("MBX-09", address) as doomed:
        from doors import dovecot_tables

        def change(front_end: dict[str, object], organization: dict[str, dict[str, object]]) -> None:
            organization["servers"]["MBX-09"] = dovecot_tables(doomed, tls=False)
            organization["databases"]["DB09"] = {"copies": [{"server": "MBX-09", "preference": 1}]}
            front_end["limits"] = {"server_step_seconds": 1.0, "connect_seconds": 1.0}

        users = [
            LabUser("alice@contoso.com", "apw", database="DB09", login_at_server="alice"),
            LabUser("bob@contoso.com", "bpw", database="DB02", login_at_server="bob"),
        ]
        door = start_front_door(change, users=users)

        def sign_in() -> str:
            with imap(door) as client:
                try:
                    client.login("alice", "apw")
                except imaplib.IMAP4.error as error:
                    return str(error)
                return subject(client)

        assert "alice on MBX-09" in sign_in()
        doomed.signal(signal.SIGSTOP)
        login_process_may_be_waiting = sign_in()
        doomed.signal(signal.SIGCONT)
        assert "UNAVAILABLE" in login_process_may_be_waiting or "on MBX-09" in login_process_may_be_waiting
        doomed.stop()
        assert "UNAVAILABLE" in sign_in()
        mail = pop3(door)
        mail.user("alice")
        with pytest.raises(poplib.error_proto, match="SYS/TEMP"):
            mail.pass_("apw")
        mail.close()
        with imap(door) as client:
            client.login("bob", "bpw")
        doomed.start()
        doomed.wait_ready()
        assert "alice on MBX-09" in sign_in()


def test_a_message_of_100_mb_goes_up_and_down_in_flat_memory(start_front_door: StartFrontDoor) -> None:
    """APPEND and FETCH through TLS to MBX-02; the worker's peak memory grows by less than 30 MB."""
    door = start_front_door()
    size = 100 * 1024 * 1024
    body = b"Subject: big\r\n\r\n" + b"0123456789abcdef" * (size // 16)
    with imap(door) as client:
        client.login("bob", "bpw")
        worker = door.process.workers()[0]
        before = peak_kib(worker)
        client.create("Big")
        client.sock.settimeout(60)
        assert client.append("Big", "", imaplib.Time2Internaldate(0), body)[0] == "OK"
        client.select("Big", readonly=True)
        _, found = client.fetch("1", "(BODY.PEEK[])")
        assert found[0][1] == body
        grown = peak_kib(worker) - before
        client.select("INBOX")
        client.delete("Big")
    assert grown < 30 * 1024


def peak_kib(pid: int) -> int:
    """The highest resident size of a process so far."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def test_idle_is_left_alone_and_ends_with_the_client(front_door: FrontDoor, servers: Servers) -> None:
    """IDLE through the relay: new mail is announced at once."""
    with imap(front_door) as client:
        client.login("alice", "apw")
        client.select("INBOX")
        client.send(b"x IDLE\r\n")
        assert client.readline().startswith(b"+ ")
        with imap(front_door) as other:
            other.login("alice", "apw")
            other.append("INBOX", "", imaplib.Time2Internaldate(0), b"Subject: new\r\n\r\nhello\r\n")
            assert b"EXISTS" in client.readline()
            client.send(b"DONE\r\n")
            line = client.readline()
            while not line.startswith(b"x "):
                line = client.readline()
            assert line.startswith(b"x OK")
            other.select("INBOX")
            other.store("2", "+FLAGS", "\\Deleted")
            other.expunge()


def test_secrets_stay_out_of_the_log(front_door: FrontDoor) -> None:
    """Neither a user's nor the master user's password is in the log, and each session has its line."""
    with imap(front_door) as client, pytest.raises(imaplib.IMAP4.error):
        client.login("alice", "my-mistyped-secret")
    deadline = time.monotonic() + 5  # lines are written in batches
    while "imap.refused" not in (text := front_door.process.output.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "my-mistyped-secret" not in text
    assert '"mpw"' not in text


def test_tls_1_1_is_refused_and_1_2_is_not(front_door: FrontDoor) -> None:
    """The oldest version that is taken, by a client that sends no server name."""
    host, port = front_door.addresses["imaps"]
    for version, taken in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = version
        with socket.create_connection((host, port), timeout=15) as plain:
            if taken:
                with context.wrap_socket(plain) as client:
                    assert client.recv(5) == b"* OK "
            else:
                with pytest.raises((ssl.SSLError, ConnectionResetError)):
                    context.wrap_socket(plain)
