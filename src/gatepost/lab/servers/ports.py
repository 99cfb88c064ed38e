"""The ports of a mail server in the lab and in tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from gatepost.lab.servers.process import free_ports


@dataclass(frozen=True, slots=True)
class MailPorts:
    """Ports of one mailbox server. `*_proxy` ones expect a PROXY header first; 0: not offered."""

    imap: int = 143
    imaps: int = 993
    pop3: int = 110
    pop3s: int = 995
    imap_proxy: int = 144
    imaps_proxy: int = 994
    pop3_proxy: int = 111
    pop3s_proxy: int = 996

    @classmethod
    def free(cls, address: str) -> Self:
        """Eight ports of `address` that are free now."""
        return cls(*free_ports(address, 8))

    def __iter__(self) -> Iterator[int]:
        """All ports that are offered."""
        ports = (self.imap, self.imaps, self.pop3, self.pop3s)
        proxied = (self.imap_proxy, self.imaps_proxy, self.pop3_proxy, self.pop3s_proxy)
        return (port for port in ports + proxied if port)


@dataclass(frozen=True, slots=True)
class SubmissionPorts:
    """Ports of one submission server, as in `MailPorts`."""

    submission: int = 587
    submissions: int = 465
    submission_proxy: int = 588
    submissions_proxy: int = 466

    @classmethod
    def free(cls, address: str) -> Self:
        """Four ports of `address` that are free now."""
        return cls(*free_ports(address, 4))

    def __iter__(self) -> Iterator[int]:
        """All ports that are offered."""
        ports = (self.submission, self.submissions, self.submission_proxy, self.submissions_proxy)
        return (port for port in ports if port)
