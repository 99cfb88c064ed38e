"""`gatepost explain --mail`: the way of a message from server to server, with reasons, and an exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gatepost.cli.explain_mail import MailQuestion, mail_report, mail_text
from gatepost.cli.main import run
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.directory.port import User
from gatepost.organization.model import Organization, Role, Server, Version
from gatepost.organization.transport import TransportConfig
from gatepost.routing.decision import Mailbox

EXAMPLE = Path(__file__).parents[3] / "examples" / "mail-two-sites.toml"
FILES = ("certificate", "private_key", "server_ca")
TOO_LARGE = "552 5.3.4 The message is too large to reach this recipient"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command on the example with two mailboxes, without its certificates and with endpoints in clear."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if not line.startswith(FILES)]
    text = "\n".join(lines).replace("imaps = {}, https = {}", 'imap = { tls = "clear" }')
    (tmp_path / "state").mkdir()
    path = tmp_path / "mail.toml"
    path.write_text(text)
    with DirectoryEditor(str(tmp_path / "state/directory.sqlite")) as editor:
        for n in ("1", "2"):
            editor.add(Entry(User(f"user{n}@contoso.com", Mailbox(f"DB0{n}")), (f"u{n}@contoso.com",)))

    def call(*words: str) -> tuple[int, str, str]:
        status = run(["explain", "--config", str(path), *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_a_mailbox_in_the_other_site(explain: Call) -> None:
    """From this site's first hub to the other site's hubs, there to the server with the active copy."""
    status, out, _ = explain("--mail", "user1@contoso.com", "<user2@contoso.com>")
    assert status == 0
    assert out.splitlines() == [
        "user1@contoso.com to user2@contoso.com (database DB02), 10000 B (10,000 bytes)",
        "  at hub HUB-01, site usa:",
        "    shadow: HUB-04, else HUB-05, else HUB-06, else HUB-02, else HUB-03",
        "     1. T3    contoso.com is an accepted domain, authoritative: all its mailboxes are here",
        "     2. T3    the mailbox is in DB02, whose active copy is on MBX-02, site europe",
        "     3. T3    the least-cost path is usa - europe, cost 10",
        "     4. T3  > relayed to the hubs of site europe",
        "    queue: SmtpRelayToRemoteActiveDirectorySite europe",
        "      hub-04.contoso.com at 10.2.0.21 port 25 by SMTP (TLS verified, mutual)",
        "      hub-05.contoso.com at 10.2.0.22 port 25 by SMTP (TLS verified, mutual)",
        "      hub-06.contoso.com at 10.2.0.23 port 25 by SMTP (TLS verified, mutual)",
        "  at hub HUB-04, site europe:",
        "     1. T3    contoso.com is an accepted domain, authoritative: all its mailboxes are here",
        "     2. T3    the mailbox is in DB02, whose active copy is on MBX-02, site europe",
        "     3. T3  > delivered to MBX-02 by LMTP",
        "    queue: SmtpDeliveryToMailbox DB02",
        "      mbx-02.contoso.com at 10.2.0.11 port 24 by LMTP (TLS verified)",
        "  => delivered from HUB-04",
    ]


def test_to_the_internet_by_the_edge(explain: Call) -> None:
    """Three servers: a hub far away, a hub beside the edge, the edge, which looks up MX."""
    status, out, _ = explain("--mail", "user2@contoso.com", "b@example.org", "--server", "hub-05.contoso.com", "--json")
    found = json.loads(out)
    assert status == 0
    assert [hop["server"] for hop in found["hops"]] == ["HUB-05", "HUB-01", "EDGE-01"]
    assert [hop["next_hop"]["delivery"] for hop in found["hops"]] == [
        "SmtpRelayToRemoteActiveDirectorySite", "SmtpRelayToConnectorSourceServers", "DnsConnectorDelivery",
    ]  # fmt: skip
    assert found["hops"][-1]["ways"] == [{"mx": "example.org", "port": 25, "tls": "opportunistic"}]
    assert found["outcome"] == "sent"


def test_from_the_internet_to_a_domain_that_is_moving(explain: Call) -> None:
    """In by the edge, out by a connector of the other site: no circle."""
    status, out, _ = explain("--mail", "a@example.org", "new@fabrikam.com", "--server", "EDGE-01", "--json")
    found = json.loads(out)
    assert status == 0
    assert [hop["server"] for hop in found["hops"]] == ["EDGE-01", "HUB-01", "HUB-04"]
    assert found["hops"][-1]["ways"][0]["host"] == "mail.old.fabrikam.com"


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("u3@contoso.com",), "=> refused: 550 5.1.1 No such recipient here"),
        (
            ("u2@contoso.com", "--size", "31MB"),
            f"=> refused: {TOO_LARGE}",
        ),
    ],
    ids=["nobody", "too large for the link"],
)
def test_what_cannot_get_there_is_exit_status_1(explain: Call, words: tuple[str, ...], end: str) -> None:
    """The reply that the sender gets, in its place."""
    status, out, _ = explain("--mail", "a@example.org", *words)
    assert status == 1
    assert out.splitlines()[-1].strip() == end


def test_no_way_is_told_as_waiting(explain: Call, tmp_path: Path) -> None:
    """Mail for which no connector is there is not refused."""
    path = tmp_path / "mail.toml"
    path.write_text(path.read_text().replace('address_spaces = ["*"]', 'address_spaces = ["example.com"]'))
    status, out, _ = explain("--mail", "a@contoso.com", "b@example.org")
    assert status == 1
    assert "queue: Unreachable Unreachable Domain" in out
    assert out.splitlines()[-1] == "  => waits: no send connector matches example.org"


def test_wrong_use(explain: Call) -> None:
    """Neither or both of user and mail; options of the other; what is no size and no hub."""
    assert explain()[0] == 2
    assert explain("user1", "--mail", "a@b.c", "d@e.f")[0] == 2
    assert explain("user1", "--size", "1MB")[0] == 2
    assert explain("--mail", "a@b.c", "d@e.f", "--size", "big")[0] == 2
    status, _, err = explain("--mail", "a@b.c", "d@e.f", "--server", "MBX-01")
    assert (status, "MBX-01 is not a hub or an edge" in err) == (1, True)


def test_without_another_hub_there_is_no_shadow_and_the_reason_is_said(explain: Call) -> None:
    """SPEC S4; a second hop needs none from a client: who hands it on keeps it."""
    status, out, _ = explain("--mail", "user1@contoso.com", "user2@contoso.com", "--json")
    hops = json.loads(out)["hops"]
    assert status == 0
    assert hops[0]["shadow"]["hubs"][0] == "HUB-04"
    assert "shadow" not in hops[1]


def test_why_no_hub_keeps_a_copy() -> None:
    usa, hub = Server("MBX-01", "usa", "m", "m", Version.MODERN, frozenset({Role.MAILBOX})), Role.HUB_TRANSPORT
    alone = Server("HUB-01", "usa", "h", "h", Version.MODERN, frozenset({hub}))
    servers = {"MBX-01": usa, "HUB-01": alone}
    nobody = "there is no other hub that may keep one; mail is"
    for config, reason in (
        (TransportConfig(), f"{nobody} accepted without a copy"),
        (TransportConfig(reject_message_on_shadow_failure=True), f"{nobody} put off (451)"),
        (TransportConfig(shadow_redundancy_enabled=False), "shadow redundancy is switched off"),
    ):
        organization = Organization("contoso", servers=servers, transport_config=config)
        found = mail_report(organization, MailQuestion("a@x.org", "b@x.org", 1, "HUB-01", None), {})
        assert found["hops"][0]["shadow"] == {"hubs": [], "reason": reason}
        assert f"    shadow: none: {reason}" in mail_text(found)
