"""What the lab prints when it is up: where everything is, and what to try."""

from __future__ import annotations

import sys
from pathlib import Path

from gatepost.lab import figure, hubs
from gatepost.lab.fleet import Fleet

GATEPOST = str(Path(sys.argv[0]).absolute()) if Path(sys.argv[0]).name == "gatepost" else "gatepost"
"""The command as it can be typed in another terminal, where this environment is not on the path."""


def guide(fleet: Fleet) -> str:
    """The text, with this lab's own addresses, ports and files."""
    parts = [_who(fleet), _figure(fleet), _try(fleet), *_mail(fleet), _settings(fleet)]
    if fleet.ports.notes:
        parts.insert(0, "\n".join(fleet.ports.notes))
    return "\n\n".join(parts)


def _who(fleet: Fleet) -> str:
    kind = "the lab's own" if fleet.builtin else "Dovecot"
    lines = [f"The lab is up. Files: {fleet.directory}. Mailbox servers: {kind}.", "", "Users and passwords:"]
    for user in figure.USERS:
        copies = figure.COPIES.get(user.database)
        where = (
            f"{user.database} on {copies[0]}, a copy on {copies[1]}" if copies else f"home server {user.home_server}"
        )
        lines.append(f"  {user.name:<20} {user.password:<10} {where}")
    return "\n".join(lines)


def _figure(fleet: Fleet) -> str:
    lines = ["Sites and servers:"]
    for site, facing in figure.SITES.items():
        lines.append(f"  {site}{' (Internet-facing)' if facing else ''}")
        for name, (where, address) in figure.FRONT_ENDS.items():
            if where == site:
                ports = ", ".join(f"{key} {port}" for key, port in fleet.ports.front[name].items())
                lines.append(f"    {name:<8} {address:<11} {ports}")
        here = [(name, address) for name, (where, address) in figure.MAILBOX_SERVERS.items() if where == site]
        lines += [f"    {name:<8} {address}" for name, address in here]
        for name, (where, address) in hubs.HUBS.items():
            if where == site and name in fleet.ports.hubs:
                ports = ", ".join(f"{key} {port}" for key, port in fleet.ports.hubs[name].items())
                lines.append(f"    {name:<8} {address:<11} {ports} (a hub)")
    return "\n".join(lines)


def _try(fleet: Fleet) -> str:
    first, second = (fleet.front_ends[name].addresses for name in ("CAS-01", "CAS-02"))
    user, password = figure.USERS[0].name, figure.USERS[0].password
    config = f"-c {fleet.configuration}"
    trust = f"--cacert {fleet.ca}"
    imaps, pop3s, https = (f"{second[key][0]}:{second[key][1]}" for key in ("imaps", "pop3s", "https"))
    clear = "{}:{}".format(*first["imap"])
    return "\n".join(
        [
            "Try (in another terminal):",
            f"  curl {trust} -u {user}:{password} 'imaps://{imaps}/INBOX;MAILINDEX=1'",
            f"  curl {trust} -u {user}:{password} pop3s://{pop3s}/1",
            f"  curl {trust} -u {user}:{password} https://{https}/owa -H 'Accept: application/json'",
            f"  openssl s_client -quiet -crlf -starttls imap -CAfile {fleet.ca} -connect {clear}",
            f"    then: a LOGIN {user} {password}",
            f"  {GATEPOST} explain user1 --protocol imap --from CAS-02 {config}",
            f"  {GATEPOST} explain user4 --protocol imap --from CAS-01 {config}",
            f"  {GATEPOST} database activate DB01 --server MBX-02 {config}",
            f"  {GATEPOST} database list {config}",
            f"  {GATEPOST} explain user5 --protocol https --path /owa --from CAS-02 {config}",
            f"  {GATEPOST} shell --config {fleet.configuration} -c 'Get-OwaVirtualDirectory'",
            f"  a browser: https://{'{}:{}'.format(*first['https'])}/owa (trust {fleet.ca}), {user}, {password}",
        ]
    )


def _mail(fleet: Fleet) -> list[str]:
    """Where there are hubs: sending mail, and what waits."""
    if not fleet.hubs:
        return []
    front = fleet.front_ends[hubs.MAIL_FRONT_ENDS[0]].addresses
    outside, submission = ("{}:{}".format(*front[key]) for key in ("smtp", "submission"))
    (user, password), other = (figure.USERS[0].name, figure.USERS[0].password), figure.USERS[1].name
    signed_in = f"--tls --auth-user {user} --auth-password {password} --from {user}"
    config = f"-c {fleet.hubs[hubs.SUBMISSION_HUB].configuration}"
    return [
        "\n".join(
            [
                "Send mail (other domains' waits at a hub, since nobody is at the smart host):",
                f"  swaks --server {outside} --from me@example.org --to {user}",
                f"  swaks --server {submission} {signed_in} --to {other},you@example.com",
                f"  {GATEPOST} queue list --no-empty --all-servers {config}",
                f"  {GATEPOST} explain --mail {user} you@example.com {config}",
            ]
        )
    ]


def _settings(fleet: Fleet) -> str:
    first = fleet.front_ends["CAS-01"].addresses
    lines = [f"A mail client's settings (normal password, user name {figure.USERS[0].name}):"]
    for label, key, kind in (("IMAP", "imaps", "SSL/TLS"), ("IMAP", "imap", "STARTTLS"), ("POP3", "pop3s", "SSL/TLS")):
        host, port = first[key]
        lines.append(f"  {label}: server {host}, port {port}, {kind}")
    if fleet.hubs:
        host, port = first["submission"]
        lines.append(f"  SMTP: server {host}, port {port}, STARTTLS")
    return "\n".join([*lines, f"  (trust the lab's authority first: {fleet.ca})"])
