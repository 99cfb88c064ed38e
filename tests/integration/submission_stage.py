"""A front end before three submission servers: two Dovecots and a Postfix, whose mail ends in a sink."""

from __future__ import annotations

import contextlib
import smtplib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from doors import ACCOUNTS, CAROL, MASTER, USERS, FrontDoor, Servers, missing, start

from gatepost.lab.servers.dovecot import Dovecot, Submission
from gatepost.lab.servers.ports import MailPorts, SubmissionPorts
from gatepost.lab.servers.postfix import Postfix, SmtpSink
from gatepost.lab.servers.process import ServerMissing, free_ports
from gatepost.lab.toml_text import Table

OUTSIDE = "127.9.9.9"
"""Where the clients are: another address than the front end's, which is 127.0.0.1 for the servers."""
SECONDS = 20.0


@dataclass
class SubmissionStage:
    """alice: MBX-01, a Dovecot in clear with XCLIENT; bob: MBX-02, one by implicit TLS with PROXY v2; both by master
    user. carol: MBX-03, a Postfix that is told by XCLIENT who has signed in."""

    door: FrontDoor
    dovecots: dict[str, Dovecot]
    postfix: Postfix
    sink: SmtpSink

    def client(self, endpoint: str = "submission", address: str = OUTSIDE) -> smtplib.SMTP:
        """A client that is connected, by TLS, and has not said anything else."""
        host, port = self.door.addresses[endpoint]
        context = self.door.client_context
        source = (address, 0)
        if endpoint == "submissions":
            return smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=context, source_address=source)
        client = smtplib.SMTP(host, port, timeout=SECONDS, source_address=source)
        client.starttls(context=context)
        return client

    def arrived(self, subject: str, seconds: float = SECONDS) -> bytes:
        """The message with that subject as the sink took it."""
        deadline = time.monotonic() + seconds
        wanted = f"Subject: {subject}\n".encode()
        while time.monotonic() < deadline:
            for message in self.sink.messages():
                if wanted in message:
                    return message
            time.sleep(0.02)
        raise AssertionError(f"{subject} has not come: {self.sink.messages()}")

    def count(self, subject: str) -> int:
        """How many messages with that subject the sink has."""
        wanted = f"Subject: {subject}\n".encode()
        return sum(wanted in message for message in self.sink.messages())


def message(subject: str, body: str = "text") -> bytes:
    """A message with that subject."""
    return f"From: <alice@contoso.com>\r\nSubject: {subject}\r\n\r\n{body}\r\n".encode()


def _directory(name: str, address: str) -> str:
    """Of one server: each stage has its own of that name."""
    return f"{name}-{address.rpartition('.')[2]}"


def submission_dovecot(servers: Servers, name: str, sink: SmtpSink) -> Dovecot:
    """A Dovecot that takes submissions; not started."""
    address = servers.address()
    certificate = servers.authority.issue(name, f"{name.lower()}.contoso.com", address)
    submission = Submission(SubmissionPorts.free(address), sink.address)
    try:
        return Dovecot(
            servers.scratch / _directory(name, address),
            address,
            MailPorts.free(address),
            ACCOUNTS,
            certificate,
            master=MASTER,
            name=name,
            submission=submission,
        )
    except ServerMissing as error:
        missing(error)


def new_sink(servers: Servers, name: str, *options: str) -> SmtpSink:
    """A sink, perhaps with more options; not started."""
    address = servers.address()
    try:
        return SmtpSink(servers.scratch / _directory(name, address), address, free_ports(address, 1)[0], name, options)
    except ServerMissing as error:
        missing(error)


def new_postfix(servers: Servers, name: str, sink: SmtpSink, *listeners: list[str], settings: str = "") -> Postfix:
    """A Postfix with a port for each list of `smtpd`'s options; not started. Its ports are in `ready`."""
    address = servers.address()
    ports = free_ports(address, len(listeners))
    certificate = servers.authority.issue(name, "mail.contoso.com", address)
    try:
        return Postfix(
            servers.scratch / _directory(name, address),
            address,
            dict(zip(ports, listeners, strict=True)),
            sink.address,
            name=name,
            certificate=certificate,
            settings=settings,
        )
    except ServerMissing as error:
        missing(error)


SASL = [
    "smtpd_sasl_auth_enable=yes",
    "smtpd_sasl_local_domain=contoso.com",
    "smtpd_relay_restrictions=permit_sasl_authenticated,reject",
    "smtpd_authorized_xclient_hosts=127.0.0.1",
]


@contextlib.contextmanager
def submission_stage(servers: Servers, **limits: Any) -> Iterator[SubmissionStage]:
    """Everything, started."""
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(new_sink(servers, "sub-sink"))
        dovecots = {
            name: stack.enter_context(submission_dovecot(servers, f"SUB-{name[-2:]}", sink))
            for name in ("MBX-01", "MBX-02")
        }
        postfix = stack.enter_context(new_postfix(servers, "SUB-03", sink, SASL))
        ports = {name: dovecot.submission.ports for name, dovecot in dovecots.items() if dovecot.submission}

        def change(front_end: Table, organization: Table) -> None:
            front_end["limits"] |= limits
            tables = organization["servers"]
            front = tables["CAS-01"]
            one, two = free_ports(front["address"], 2)
            front["endpoints"] |= {"submission": {"port": one}, "submissions": {"port": two}}
            first, second = dovecots["MBX-01"], dovecots["MBX-02"]
            tables["MBX-01"]["endpoints"]["submission"] = {
                "address": first.address,
                "port": ports["MBX-01"].submission,
                "tls": "clear",
                "client_address": "xclient",
            }
            tables["MBX-02"]["endpoints"]["submissions"] = {
                "address": second.address,
                "port": ports["MBX-02"].submissions_proxy,
                "tls_name": "sub-02.contoso.com",
                "client_address": "proxy-v2",
            }
            tables["MBX-03"] = {
                "site": "usa",
                "roles": ["mailbox"],
                "address": postfix.address,
                "fqdn": "mail.contoso.com",
                "endpoints": {
                    "submission": {"port": postfix.ready[0][1], "client_address": "xclient-login"},
                },
            }
            organization["databases"]["DB03"] = {"copies": [{"server": "MBX-03"}]}

        door = start(servers, change, [*USERS, CAROL])
        stack.callback(door.stop)
        yield SubmissionStage(door, dovecots, postfix, sink)
