"""The one message in each mailbox of the lab: it says on which server it lies."""

from __future__ import annotations


def greeting_message(user: str, server: str) -> bytes:
    """A message whose subject names the server. `user` is a name without its domain."""
    lines = [
        f"From: Lab <lab@{server.lower()}.contoso.com>",
        f"To: {user}@contoso.com",
        f"Subject: Welcome to {server}",
        "Date: Thu, 01 Jan 2026 00:00:00 +0000",
        f"Message-ID: <welcome-{user}@{server.lower()}.contoso.com>",
        f"X-Mailbox-Server: {server}",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "",
        f"This is the copy of {user}'s mailbox on {server}.",
        "",
    ]
    return "\r\n".join(lines).encode()
