"""The files that a configuration names besides TOML: certificates, keys, passwords. Every read fault is a finding."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path as FilePath

from cryptography.x509 import Certificate

from gatepost.configuration.certificates import certificates, key_fault, public_key_fault, validity_fault
from gatepost.configuration.document import Document, Findings, Read, attempt
from gatepost.organization.faults import Path, error, warning

ModeOf = Callable[[str], int]
"""From a path to the file's permission bits; raises OSError."""

OTHERS_MAY_READ = 0o004


def file_mode(path: str) -> int:
    """The permission bits of `path`. Raises OSError."""
    return FilePath(path).stat().st_mode


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is on the machine that the configuration is for, to judge it there."""

    has_account: Callable[[str], bool]
    has_folder: Callable[[str], bool]
    may_read: Callable[[str, str], bool] = lambda _account, _path: True
    """Whether an account may read a file."""


def this_machine() -> Machine:
    """The machine that this process runs on. What it may not look at counts as there."""
    return Machine(_has_account, _has_folder, _may_read)


def _has_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _has_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(FilePath(path).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _may_read(account: str, path: str) -> bool:
    """By owner, groups and mode; what the folders above allow is not looked at."""
    try:
        entry, found = pwd.getpwnam(account), FilePath(path).stat()
        groups = os.getgrouplist(account, entry.pw_gid)
    except (KeyError, OSError):
        return True  # told elsewhere
    if entry.pw_uid in (0, found.st_uid):
        return entry.pw_uid == 0 or bool(found.st_mode & stat.S_IRUSR)
    return bool(found.st_mode & (stat.S_IRGRP if found.st_gid in groups else stat.S_IROTH))


@dataclass(frozen=True, slots=True)
class Named:
    """A file as a key of a document names it."""

    document: Document
    key: Path
    path: str
    who: str
    """The object that the key belongs to."""
    what: str
    """What the file is, such as "the certificate"."""


@dataclass
class Files:
    """Reads named files and collects what is wrong with them."""

    read: Read
    findings: Findings
    now: datetime
    mode_of: ModeOf | None = None
    machine: Machine | None = None
    """With one, accounts and folders are looked for."""
    _certificates: dict[str, list[Certificate]] = field(default_factory=dict)

    def content(self, named: Named) -> bytes | None:
        """The file's content; None when it cannot be read."""
        content = attempt(named.document.beside(named.path), self.read)
        if isinstance(content, str):
            message = f"{named.what} {named.document.beside(named.path)} cannot be read: {content}"
            self._error(named, message, "put the file there, or correct its path or permissions")
            return None
        return content

    def certificates(self, named: Named) -> tuple[bytes, list[Certificate]] | None:
        """A PEM file with one or more certificates, and those; None when there are none."""
        pem = self.content(named)
        if pem is None:
            return None
        try:
            found = certificates(pem)
        except ValueError as fault:
            self._error(named, f"{named.what} {named.path} {fault}", "give a file that begins with BEGIN CERTIFICATE")
            return None
        fault_of_leaf = validity_fault(found[0], self.now)
        if fault_of_leaf:
            message = f"{named.what} {named.path} {fault_of_leaf}"
            self._warning(named, message, "renew it, then reload")
        return pem, found

    def private_key(self, named: Named, leaf: Certificate | None) -> bytes | None:
        """A PEM file with the private key of `leaf`; None when it cannot be used."""
        pem = self.content(named)
        if pem is None:
            return None
        self._secret(named)
        fault = key_fault(pem, leaf)
        if fault:
            remedies = {
                "is locked with a passphrase": "store it without one, readable by the service only",
                "does not belong to the certificate": "give the key that the certificate was made for",
            }
            self._error(named, f"{named.what} {named.path} {fault}", remedies.get(fault, "give a PEM private key"))
            return None
        return pem

    def public_key(self, named: Named) -> bytes | None:
        """A PEM file with a public key; None when it is none."""
        pem = self.content(named)
        if pem is None:
            return None
        fault = public_key_fault(pem)
        if fault:
            self._error(named, f"{named.what} {named.path} {fault}", "give a file that begins with BEGIN PUBLIC KEY")
            return None
        return pem

    def secret(self, named: Named) -> bytes | None:
        """The content of a file that only few may read."""
        content = self.content(named)
        if content is not None:
            self._secret(named)
        return content

    def password(self, named: Named) -> str | None:
        """A file with one line of text; None when it holds anything else."""
        content = self.content(named)
        if content is None:
            return None
        self._secret(named)
        try:
            text = content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            text = ""
        # A line end or NUL inside would end the sign-in's line early and make the rest a command.
        if not text or any(character in text for character in "\r\n\0"):
            message = f"{named.what} {named.path} does not hold one line of UTF-8 text"
            self._error(named, message, "write the password into it, and nothing else")
            return None
        return text

    def signing_key(self, named: Named) -> bytes:
        """A private key that signs tokens for servers; empty when it cannot be used."""
        pem = self.secret(named)
        if pem is None:
            return b""
        from gatepost.peers.login_token import signer_of  # its libraries are for those who need them

        try:
            signer_of(pem)
        except ValueError as fault:
            self._error(named, f"{named.what} {named.path} {fault}", "make one: gatepost assertion-key make FILE")
            return b""
        return pem

    def _secret(self, named: Named) -> None:
        if self.mode_of is None:
            return
        try:
            mode = self.mode_of(named.document.beside(named.path))
        except OSError:
            return  # it was read a moment ago; who reads it next will say so
        if mode & OTHERS_MAY_READ:
            message = f"{named.what} {named.path} can be read by every account of this machine"
            self._warning(named, message, f"chmod o-rwx {named.path}")

    def _error(self, named: Named, message: str, remedy: str) -> None:
        self.findings.add(named.document, error(named.key, named.who, message, remedy))

    def _warning(self, named: Named, message: str, remedy: str) -> None:
        self.findings.add(named.document, warning(named.key, named.who, message, remedy))
