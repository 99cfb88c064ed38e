"""From `[front_end.shared_store]` to `SharedStoreSettings`, with the faults of its values and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import quote, urlsplit

from gatepost.configuration.document import Document
from gatepost.configuration.files import Files
from gatepost.configuration.front_end_keys import WHO
from gatepost.configuration.settings import EtcdSettings, SharedStoreSettings
from gatepost.configuration.shared_store_schema import Engine, SharedStoreTable
from gatepost.configuration.store_files import StoreFiles
from gatepost.organization.addresses import is_loopback
from gatepost.organization.faults import Path, error, quoted, warning
from gatepost.organization.model import Finding, Organization, Server

MIN_SECRET_BYTES = 16
_PATH: Path = ("front_end", "shared_store")
_OF_REDIS = ("url", "user", "password_file", "ca", "certificate", "private_key")


def build_shared_store(
    document: Document,
    table: SharedStoreTable | None,
    files: Files,
    organization: Organization | None,
    server: Server | None,
    etcd: EtcdSettings | None,
) -> SharedStoreSettings | None:
    """The settings as far as they can be built; None when nothing is shared beyond this machine."""
    return _Build(document, table, files, organization, server, etcd).settings() if table is not None else None


@dataclass(frozen=True)
class _Build:
    document: Document
    table: SharedStoreTable
    files: Files
    organization: Organization | None
    server: Server | None
    etcd: EtcdSettings | None

    def settings(self) -> SharedStoreSettings:
        """The settings, with their faults added to the findings."""
        table = self.table
        is_redis = table.engine is Engine.REDIS
        for finding in (*self._judge_engine(), *self._judge_prefix(), *(self._judge_url() if is_redis else ())):
            self._add(finding)
        own = self._files()
        certificate, private_key, _ = own.key_pair() if is_redis else (b"", b"", None)
        return SharedStoreSettings(
            secret=self._secret(),
            prefix=self._prefix(),
            answer_seconds=table.answer_seconds,
            etcd=None if is_redis else self.etcd,
            url=table.url if is_redis else "",
            user=table.user,
            password=own.password() if is_redis else "",
            ca=own.ca() if is_redis else b"",
            certificate=certificate,
            private_key=private_key,
        )

    def _files(self) -> StoreFiles:
        return StoreFiles(self.document, self.table, self.files, self.server, _PATH, "the shared store")

    def _add(self, finding: Finding) -> None:
        self.files.findings.add(self.document, finding)

    def _prefix(self) -> str:
        if self.table.prefix:
            return self.table.prefix.rstrip("/")
        if self.table.engine is Engine.ETCD and self.etcd is not None:
            return f"{self.etcd.prefix}/shared"
        return f"/gatepost/{quote(self.organization.name, safe='') if self.organization else ''}/shared"

    def _judge_engine(self) -> Iterator[Finding]:
        if self.table.engine is Engine.REDIS:
            if find_spec("redis") is None:
                message = "the shared store is Redis, whose client redis is not installed"
                yield error((*_PATH, "engine"), WHO, message, "pip install gatepost[redis]")
            return
        if self.etcd is None:
            message = "the shared store is etcd, and no cluster is named"
            yield error((*_PATH, "engine"), WHO, message, 'add [front_end.etcd], or use engine = "redis"')
        for key in _OF_REDIS:
            if getattr(self.table, key):
                message = f"{key} has no use: etcd's are in [front_end.etcd]"
                yield warning((*_PATH, key), WHO, message, "remove it")

    def _judge_prefix(self) -> Iterator[Finding]:
        prefix = self.table.prefix
        bad = not prefix.isascii() or any(character <= " " or character == "\x7f" for character in prefix)
        if prefix and (bad or not prefix.startswith("/") or not prefix.strip("/")):
            message = f"the prefix {quoted(prefix)} is not a slash and a name in ASCII without spaces"
            yield error((*_PATH, "prefix"), WHO, message, 'write it like "/gatepost/contoso/shared"')

    def _judge_url(self) -> Iterator[Finding]:
        table, here = self.table, (*_PATH, "url")
        remedy = "write it like rediss://redis.contoso.com:6379/0"
        if not table.url:
            yield error(here, WHO, "no server of Redis is named", remedy)
            return
        fault, host, scheme = _url_fault(table.url)
        if fault:
            yield error(here, WHO, f"the URL {quoted(_without_password(table.url))} {fault}", remedy)
            return
        if scheme == "redis" and not is_loopback(host):
            message = f"the URL {quoted(table.url)} is in clear text and on another machine"
            yield error(here, WHO, message, "use rediss: who changes what is there lets guessers go on")
        for key in ("ca", "certificate"):
            if scheme == "redis" and getattr(table, key):
                yield warning((*_PATH, key), WHO, f"{key} has no use: Redis is asked in clear text", "use rediss")
        if table.user and not table.password_file:
            message = "a user at Redis and no password"
            yield error((*_PATH, "user"), WHO, message, 'add password_file = "secrets/redis"')
        if table.private_key and not table.certificate:
            message = "a private key for Redis and no certificate"
            yield error((*_PATH, "private_key"), WHO, message, "add certificate, or leave private_key away")

    def _secret(self) -> bytes:
        named = self._files().named("secret_file", self.table.secret_file, "the secret")
        secret = self.files.secret(named)
        if secret is None:
            return b""
        secret = secret.strip()
        if len(secret) < MIN_SECRET_BYTES:
            message = f"{named.what} {named.path} is shorter than {MIN_SECRET_BYTES} bytes"
            remedy = "make one for all front ends: head -c 32 /dev/urandom | base64"
            self._add(error((*_PATH, "secret_file"), WHO, message, remedy))
        return secret


def _url_fault(text: str) -> tuple[str, str, str]:
    """What is wrong with it, its host and its scheme."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return "is none", "", ""
    if url.scheme not in ("redis", "rediss"):
        return "does not begin with rediss://", "", ""
    if not url.hostname or port == 0:
        return "names no host and port", "", ""
    if url.username is not None or url.password is not None:
        return "holds an account: use user and password_file", "", ""
    if url.query or url.fragment or (url.path.strip("/") and not url.path.strip("/").isdigit()):
        return "has more than a database's number behind the port", "", ""
    return "", url.hostname, url.scheme


def _without_password(text: str) -> str:
    """Secrets are not shown, also where they do not belong."""
    scheme, mark, rest = text.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if "@" in rest else text
