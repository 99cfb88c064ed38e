"""etcd for registries: one member or a cluster of several, with or without TLS, each member its own process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from gatepost.lab.servers.pki import CertificateAuthority
from gatepost.lab.servers.process import (
    READY_SECONDS,
    Address,
    ServerNotStarted,
    ServerProcess,
    free_ports,
    require_program,
)

PACKAGES = ("etcd-server", "etcd-client")
HEARTBEAT_MILLISECONDS = 50
ELECTION_MILLISECONDS = 500
"""A tenth of etcd's defaults for machines far apart: a new leader is there within a second, a lease may last one."""
COMMAND_SECONDS = 10.0
KILLED_SECONDS = 10.0


class EtcdMember(ServerProcess):
    """One member. `url` is where clients find it."""

    def __init__(
        self, name: str, directory: Path, client: Address, peer: Address, authority: CertificateAuthority | None
    ) -> None:
        """Raises `ServerMissing`."""
        program = require_program("etcd", PACKAGES)
        directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        self.url = f"{'https' if authority else 'http'}://{client[0]}:{client[1]}"
        self.peer_url = f"http://{peer[0]}:{peer[1]}"
        self.peer = peer
        argv = [program, "--name", name, "--data-dir", str(self.data)]
        argv += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        argv += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        argv += ["--heartbeat-interval", str(HEARTBEAT_MILLISECONDS)]
        argv += ["--election-timeout", str(ELECTION_MILLISECONDS)]
        if authority is not None:
            # Its own gateway is a TLS client of it, with the same certificate.
            files = authority.issue(f"etcd-{name}", client[0], "localhost", for_clients=True)
            argv += ["--cert-file", str(files.certificate), "--key-file", str(files.private_key)]
            argv += ["--client-cert-auth", "--trusted-ca-file", str(authority.directory / "ca.crt")]
        super().__init__(name, argv, directory, [client])

    def stop(self, seconds: float = 2.0) -> None:
        """End it; one that has no majority takes its time."""
        super().stop(seconds)


class EtcdCluster:
    """Members on one loopback address. Use with `with`."""

    def __init__(
        self,
        directory: Path,
        address: str,
        size: int = 3,
        *,
        authority: CertificateAuthority | None = None,
        token_seconds: int = 300,
        addresses: Sequence[str] = (),
    ) -> None:
        """At `addresses`, one a member, where not all are at `address`. Raises `ServerMissing`.

        With `authority` clients must speak TLS and show a certificate of it; their sign-ins last `token_seconds`.
        """
        self._ctl = require_program("etcdctl", PACKAGES)
        ports = free_ports("127.0.0.1" if addresses else address, 2 * size)
        at = addresses or [address] * size
        self.directory = directory
        self.members = [
            EtcdMember(
                f"n{n + 1}", directory / f"n{n + 1}", (at[n], ports[2 * n]), (at[n], ports[2 * n + 1]), authority
            )
            for n in range(size)
        ]
        together = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in self.members:
            member.argv += ["--auth-token-ttl", str(token_seconds)]
            member.argv += ["--initial-cluster", together, "--initial-cluster-state", "new"]
        self.environment: dict[str, str] = {"ETCDCTL_API": "3"}
        """For `etcdctl`: certificates, an account."""
        if authority is not None:
            # With a common name the gateway refuses to serve it where accounts are on.
            files = authority.issue("etcd-client", "etcd-client", for_clients=True, subject=False)
            self.client_certificate, self.client_key = files.certificate, files.private_key
            self.environment |= {
                "ETCDCTL_CACERT": str(authority.directory / "ca.crt"),
                "ETCDCTL_CERT": str(files.certificate),
                "ETCDCTL_KEY": str(files.private_key),
            }

    @property
    def urls(self) -> tuple[str, ...]:
        """Where clients find its members."""
        return tuple(member.url for member in self.members)

    def start(self) -> None:
        """Start all members and wait for a leader. Raises `ServerNotStarted`."""
        for member in self.members:
            if not member.running:
                member.start()
        for member in self.members:
            member.wait_ready()
        self.wait_leader()

    def wait_leader(self, seconds: float = READY_SECONDS) -> EtcdMember:
        """The leader, as soon as the running members have one. Raises `ServerNotStarted`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.leader()
            if found is not None:
                return found
            time.sleep(0.02)
        raise ServerNotStarted(f"etcd has no leader\n{self.members[0].log_tail()}")

    def leader(self) -> EtcdMember | None:
        """The member that leads, None where there is none. Frozen members must not be asked: see `ask`."""
        for member in self.members:
            if not member.running:
                continue
            try:
                status = json.loads(self.ctl("endpoint", "status", "--write-out=json", member=member, seconds=1))
            except (ServerNotStarted, ValueError):
                continue
            if status and status[0]["Status"].get("leader") == status[0]["Status"]["header"]["member_id"]:
                return member
        return None

    def ctl(
        self,
        *words: str,
        member: EtcdMember | None = None,
        seconds: float = COMMAND_SECONDS,
    ) -> str:
        """Run etcdctl at one member, the first by default; answers what it prints. Raises `ServerNotStarted`."""
        endpoint = (member or self.members[0]).url
        argv = [self._ctl, "--endpoints", endpoint, f"--command-timeout={seconds}s", f"--dial-timeout={seconds}s"]
        try:
            done = subprocess.run(  # noqa: S603 - arguments are ours
                [*argv, *words],
                capture_output=True,
                text=True,
                timeout=2 * seconds + 1,
                check=True,
                env=os.environ | self.environment,
            )
        except subprocess.CalledProcessError as error:
            raise ServerNotStarted(f"etcdctl {' '.join(words)}: {error.stderr.strip()}") from error
        except subprocess.TimeoutExpired as error:
            raise ServerNotStarted(f"etcdctl {' '.join(words)}: no answer") from error
        return done.stdout

    def require_sign_in(self, user: str, password: str, prefix: str) -> None:
        """Give `user` all keys below `prefix`, and have everybody sign in from now on."""
        self.ctl("user", "add", "root:rootpw")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("role", "add", "gatepost")
        self.ctl("role", "grant-permission", "gatepost", "--prefix=true", "readwrite", prefix)
        self.ctl("user", "add", f"{user}:{password}")
        self.ctl("user", "grant-role", user, "gatepost")
        self.ctl("auth", "enable")
        self.environment["ETCDCTL_USER"] = "root:rootpw"

    def stop(self) -> None:
        """End all members; their data stays."""
        for member in self.members:
            member.stop()

    def forget(self) -> None:
        """Remove all members' data; they must have been stopped."""
        for member in self.members:
            shutil.rmtree(member.data, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
