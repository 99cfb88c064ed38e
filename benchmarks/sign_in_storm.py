"""Everybody signs in at once, for the first time, and the directory takes 20 ms for each answer.

    python benchmarks/sign_in_storm.py [--count N] [--connections C] [--delay SECONDS] [--only WORD ...] [--repeat N]

Gatepost with two workers and its sessions logged; nginx's mail proxy with two, which asks the same service by
`auth_http`. Nothing is pinned: front end, service, stub and load share the machine. Each sign-in is another user's, so
nothing is answered from memory. Ways: `hash` (the service tells a salted SHA-512), `check` (it judges the password by a
second question), `ldap` (a real slapd behind a relay that delays its answers: a search and a bind), by IMAP and HTTP.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from machine import Machine, allow_open_files, family, free_port
from peers import ADDRESS, PASSWORD, Stage, gatepost_configuration, names_of, set_stage

HERE = Path(__file__).parent
BOTH_CORES = "0-1"
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_SECONDS = 120


def processor_seconds(pids: list[int]) -> float:
    """Of these processes so far."""
    total = 0
    for pid in pids:
        with suppress(OSError):  # one that reads the configuration at the start has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def storm(stage: Stage, build: Path, port: int, pid: int, mode: str, words: argparse.Namespace) -> dict[str, float]:
    """Sign everybody in once: rate, latencies, processor time of the front end and of the load for one, errors."""
    command = [str(build / "loadgen"), mode, "--host", ADDRESS, "--port", str(port), "--path", "/owa/"]
    command += ["--http-host", "mail.example.com", "--connections", str(words.connections), "--password", PASSWORD]
    command += ["--users", str(words.count), "--count", str(words.count)]
    own = family(pid)
    before = processor_seconds(own)
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=False)
    used = processor_seconds(own) - before
    answer: dict[str, float] = json.loads(done.stdout)
    count = max(answer["count"], 1)
    if answer["errors"]:
        print("first error:", answer["first_error"])
    return {
        "rate": answer["count"] / answer["seconds"],
        "p50": answer["p50_ms"],
        "p99": answer["p99_ms"],
        "errors": answer["errors"],
        "cpu": used / count * 1e6,
        "load": answer["own_cpu"] / count * 1e6,
    }


@contextmanager
def gatepost(stage: Stage, directory: str) -> Iterator[tuple[int, int, int]]:
    """A front end that asks `directory` (TOML), fresh: process id, ports of IMAP and HTTP."""
    imap, imaps, http, https = (free_port(ADDRESS) for _ in range(4))
    text = gatepost_configuration(stage, imap, imaps, http, https).replace("workers = 1", "workers = 2")
    text = text.replace(
        "password_checks_per_address = 64", "password_checks_per_address = 4096, password_checks = 8192"
    )
    path = stage.write("storm.toml", text + directory)
    for left_over in stage.folder.glob("*.sqlite*"):
        left_over.unlink()
    command = [stage.python, "-m", "gatepost"]
    subprocess.run([*command, "database", "list", "-c", str(path)], check=True, stdout=subprocess.DEVNULL)
    with own_machine(stage) as machine:
        process = machine.start("gatepost", [*command, "serve", "-c", str(path)], BOTH_CORES)
        for port in (imap, http):
            machine.wait_for(process, "gatepost", ADDRESS, port)
        time.sleep(2)  # both workers are there
        yield process.pid, imap, http


@contextmanager
def nginx(stage: Stage, service: int) -> Iterator[tuple[int, int, int]]:
    """nginx's mail proxy before the stub; the service says that everybody may."""
    imap = free_port(ADDRESS)
    modules = next((d for d in ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules") if Path(d).is_dir()), "")
    module = Path(modules) / "ngx_mail_module.so"
    path = stage.write(
        "storm-nginx.conf",
        f"""{f"load_module {module};" if module.exists() else ""}
daemon off; worker_processes 2; user root;
pid {stage.folder}/storm-nginx.pid; error_log {stage.folder}/storm-nginx.log error;
events {{ worker_connections 8192; }}
mail {{
  auth_http {ADDRESS}:{service}/auth; proxy_pass_error_message on;
  server {{ listen {ADDRESS}:{imap} backlog=4096; protocol imap; }}
}}
""",
    )
    with own_machine(stage) as machine:
        process = machine.start("nginx", ["nginx", "-p", str(stage.folder), "-c", str(path)], BOTH_CORES)
        machine.wait_for(process, "nginx", ADDRESS, imap)
        time.sleep(1)  # both workers are there
        yield process.pid, imap, 0


@contextmanager
def own_machine(stage: Stage) -> Iterator[Machine]:
    """Processes of one measurement, ended after it."""
    machine = Machine(stage.folder)
    try:
        yield machine
    finally:
        machine.stop_all()


@contextmanager
def slapd(stage: Stage, count: int, delay: float) -> Iterator[str]:
    """A slapd with everybody, behind a relay that delays its answers; the directory's table."""
    from gatepost.lab.servers.pki import CertificateAuthority
    from gatepost.lab.servers.slapd import ADMIN, ADMIN_PASSWORD, SUFFIX, TOP, Slapd

    files = CertificateAuthority.create(stage.folder / "pki").issue("slapd", "ldap.example.com", ADDRESS)
    server = Slapd(Path(tempfile.mkdtemp(prefix="slapd-", dir=stage.folder)), ADDRESS, files)
    entry = (
        "dn: cn={0},{1}\nobjectClass: inetOrgPerson\nobjectClass: qmailUser\ncn: {0}\nsn: {0}\nmail: {0}\n"
        "mailDatabase: DB01\nuserPassword: {2}\n\n"
    )
    server.load(TOP + "".join(entry.format(name, SUFFIX, PASSWORD) for name in names_of("user", count)))
    relay = free_port(ADDRESS)
    with server, own_machine(stage) as machine:
        port = server.url.rpartition(":")[2]
        command = [sys.executable, str(HERE / "slow_relay.py"), ADDRESS, str(relay), ADDRESS, port, str(delay)]
        machine.wait_for(machine.start("relay", command, BOTH_CORES), "relay", ADDRESS, relay)
        secret = stage.write("ldap-secret", ADMIN_PASSWORD)
        secret.chmod(0o600)
        yield f"""
[[front_end.directories]]
name = "slow"
[front_end.directories.ldap]
servers = ["ldap://{ADDRESS}:{relay}"]
tls = "clear"
base = "{SUFFIX}"
bind_name = "{ADMIN}"
bind_password_file = "{secret}"
database = "mailDatabase"
"""


def http_directory(port: int, more: str = "") -> str:
    """The table of the look-up service."""
    return f"""
[[front_end.directories]]
name = "slow"
[front_end.directories.http]
urls = ["http://{ADDRESS}:{port}/look-up"]
{more}
"""


def measure(stage: Stage, build: Path, words: argparse.Namespace) -> None:
    """All ways in turn."""
    from passlib.hash import ldap_salted_sha512

    hashed = ldap_salted_sha512.hash(PASSWORD)
    services = {}
    for name, password_hash in (("hash", hashed), ("check", "")):
        port = services[name] = free_port(ADDRESS)
        command = [sys.executable, str(HERE / "slow_directory.py"), ADDRESS, str(port), str(words.delay), password_hash]
        process = stage.machine.start(f"service-{name}", [*command, ADDRESS, str(stage.imap_server)], BOTH_CORES)
        stage.machine.wait_for(process, name, ADDRESS, port)
    print(f"{words.count} first sign-ins over {words.connections} connections, {words.delay * 1000:.0f} ms an answer")
    print(f"{'':22}{'/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'µs each':>9}{'load µs':>9}{'errors':>8}{'load avg':>10}")

    def one(name: str, place: tuple[int, int, int], mode: str) -> None:
        pid, imap, http = place
        found = storm(stage, build, http if mode == "http" else imap, pid, mode, words)
        print(
            f"{name:22}{found['rate']:8,.0f}{found['p50']:9.1f}{found['p99']:9.1f}{found['cpu']:9.0f}"
            f"{found['load']:9.0f}{found['errors']:8.0f}{os.getloadavg()[0]:10.1f}",
            flush=True,
        )

    def wanted(name: str) -> bool:
        return not words.only or any(word in name for word in words.only)

    for _ in range(words.repeat):
        if wanted("nginx"):
            with nginx(stage, services["hash"]) as place:
                one("nginx mail", place, "login")
        for name, more in (("hash", ""), ("check", 'check_path = "/check"\nconnections = 64')):
            for mode in ("login", "http"):
                if wanted(f"{name} {mode}"):
                    with gatepost(stage, http_directory(services[name], more)) as place:
                        one(f"gatepost {name} {'IMAP' if mode == 'login' else 'HTTP'}", place, mode)
        if wanted("ldap"):
            with slapd(stage, words.count, words.delay) as table, gatepost(stage, table + words.ldap) as place:
                one("gatepost ldap IMAP", place, "login")


def main() -> int:
    """Status 0; errors are in the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--delay", type=float, default=0.020)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--ldap", default="connections = 32", help="further keys of the LDAP directory")
    words = parser.parse_args()
    allow_open_files()
    with tempfile.TemporaryDirectory(prefix="gp-storm-") as folder:
        build = Path(folder) / "build"
        subprocess.run(["make", "--silent", "-C", str(HERE), f"BUILD={build}"], check=True)
        machine = Machine(Path(folder))
        try:
            measure(set_stage(machine, build, 1, 1, sys.executable), build, words)
        finally:
            machine.stop_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
