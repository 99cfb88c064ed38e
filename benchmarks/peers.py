"""What is measured: Gatepost, its peers, and the servers behind them, each started the way its manual says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cookies import cookie_fields
from machine import LOAD_CORE, PROXY_CORE, Machine, family, free_port, make_certificate

DOMAIN = "example.com"
PASSWORD = "secret"
COLD_PASSWORD = "another"
ADDRESS = "127.0.0.1"
SESSIONS = 9000
"""What a peer must be able to hold; two sockets each."""
CONNECTIONS = 19000
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Peer:
    """Something to connect to. A port of 0 means that it does not do this."""

    name: str
    imap: int = 0
    imaps: int = 0
    http: int = 0
    https: int = 0
    pid: int = 0
    helper_pid: int = 0
    """nginx's sign-in service: shown apart, since it may run on the other core."""
    cookies: Path | None = None
    """Who asks: a Cookie field a line for each user; None: by Basic credentials."""

    def port(self, mode: str, tls: bool) -> int:
        """The port for a mode of the load generator."""
        if mode == "http":
            return self.https if tls else self.http
        return self.imaps if tls else self.imap

    def pids(self) -> list[int]:
        """All processes whose time counts as this peer's own."""
        return family(self.pid) if self.pid else []


@dataclass(frozen=True)
class Stage:
    """What every peer needs to know: the servers behind, the users, the certificate."""

    machine: Machine
    imap_server: int
    http_server: int
    stub_pid: int
    users: int
    cold_users: int
    certificate: Path
    key: Path
    python: str
    """Interpreter that runs Gatepost: one that has what operators install, and no more."""

    @property
    def folder(self) -> Path:
        """Where files go."""
        return self.machine.folder

    def run(self, name: str, command: list[str], ports: list[int], core: int = PROXY_CORE) -> int:
        """Start one process, wait for its ports, give its pid."""
        process = self.machine.start(name, command, core)
        for port in ports:
            self.machine.wait_for(process, name, ADDRESS, port)
        return process.pid

    def write(self, name: str, text: str) -> Path:
        """Write a configuration file."""
        path = self.folder / name
        path.write_text(text)
        return path


def set_stage(machine: Machine, build: Path, users: int, cold_users: int, python: str) -> Stage:
    """Certificate and stub servers."""
    certificate, key = make_certificate(machine.folder)
    imap, http = free_port(ADDRESS), free_port(ADDRESS)
    process = machine.start("stub", [str(build / "stub"), ADDRESS, str(imap), str(http)], LOAD_CORE)
    machine.wait_for(process, "stub", ADDRESS, imap)
    return Stage(machine, imap, http, process.pid, users, cold_users, certificate, key, python)


def start_direct(stage: Stage) -> list[Peer]:
    """No proxy at all: the stub itself, on the core that it always has."""
    return [Peer("direct", imap=stage.imap_server, http=stage.http_server)]


def start_nginx(stage: Stage, auth_core: int) -> list[Peer]:
    """nginx as mail proxy with `auth_http` and as web proxy with `auth_request`; buffers are its defaults.

    The web proxy twice: connections to the sign-in service kept alive ("nginx"), or one for each question, as it is
    when nothing is said ("nginx-close").
    """
    auth, imap, imaps, http, closing = (free_port(ADDRESS) for _ in range(5))
    names = "".join(f"{name}\t{PASSWORD}\n" for name in names_of("user", stage.users))
    auth_command = [sys.executable, str(HERE / "auth_service.py"), ADDRESS, str(auth)]
    auth_command += [ADDRESS, str(stage.imap_server), str(stage.write("auth-users", names))]
    helper = stage.run("auth", auth_command, [auth], auth_core)
    modules = next((d for d in ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules") if Path(d).is_dir()), "")
    module = Path(modules) / "ngx_mail_module.so"
    configuration = stage.write(
        "nginx.conf",
        f"""{f"load_module {module};" if module.exists() else ""}
daemon off; worker_processes 1; user root;
pid {stage.folder}/nginx.pid; error_log {stage.folder}/nginx-error.log error;
events {{ worker_connections {CONNECTIONS}; }}
mail {{
  auth_http {ADDRESS}:{auth}/auth; proxy_pass_error_message on;
  ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {stage.certificate}; ssl_certificate_key {stage.key};
  server {{ listen {ADDRESS}:{imap} backlog=4096; protocol imap; }}
  server {{ listen {ADDRESS}:{imaps} ssl backlog=4096; protocol imap; }}
}}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {stage.folder}/nginx-body; proxy_temp_path {stage.folder}/nginx-proxy;
  fastcgi_temp_path {stage.folder}/nginx-f; uwsgi_temp_path {stage.folder}/nginx-u;
  scgi_temp_path {stage.folder}/nginx-s;
  proxy_http_version 1.1; proxy_set_header Connection "";
  upstream sign_in {{ server {ADDRESS}:{auth}; keepalive 256; keepalive_requests 100000000; }}
  upstream mailbox {{ server {ADDRESS}:{stage.http_server}; keepalive 256; keepalive_requests 100000000; }}
{web_server(http, "sign_in")}{web_server(closing, f"{ADDRESS}:{auth}")}}}
""",
    )
    pid = stage.run("nginx", ["nginx", "-p", str(stage.folder), "-c", str(configuration)], [imap, imaps, http, closing])
    return [
        Peer("nginx", imap, imaps, http, pid=pid, helper_pid=helper),
        Peer("nginx-close", http=closing, pid=pid, helper_pid=helper),
    ]


def web_server(port: int, sign_in: str) -> str:
    """One of nginx's web front ends; `sign_in` is where `auth_request` asks."""
    return f"""  server {{
    listen {ADDRESS}:{port} backlog=4096;
    location / {{
      auth_request /sign-in; auth_request_set $server $upstream_http_x_server; proxy_pass http://$server;
    }}
    location = /sign-in {{
      internal; proxy_pass http://{sign_in}; proxy_pass_request_body off; proxy_set_header Content-Length "";
      proxy_set_header Connection "";
    }}
  }}
"""


def start_haproxy(stage: Stage) -> list[Peer]:
    """HAProxy: TCP for IMAP, so without any sign-in of its own; HTTP kept-alive, also without sign-in. One thread."""
    imap, imaps, http = (free_port(ADDRESS) for _ in range(3))
    configuration = stage.write(
        "haproxy.cfg",
        f"""global
  nbthread 1
  maxconn {SESSIONS}
defaults
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen imap
  mode tcp
  bind {ADDRESS}:{imap} backlog 4096
  server stub {ADDRESS}:{stage.imap_server}
listen imaps
  mode tcp
  bind {ADDRESS}:{imaps} backlog 4096 ssl crt {stage.folder}/front.pem
  server stub {ADDRESS}:{stage.imap_server}
listen http
  mode http
  bind {ADDRESS}:{http} backlog 4096
  http-reuse always
  server stub {ADDRESS}:{stage.http_server}
""",
    )
    pid = stage.run("haproxy", ["haproxy", "-f", str(configuration)], [imap, imaps, http])
    return [Peer("haproxy", imap, imaps, http, pid=pid)]


def start_dovecot(stage: Stage) -> list[Peer]:
    """Dovecot as proxy in its high-performance mode: one login process for all, the user's password passed on."""
    imap, imaps = free_port(ADDRESS), free_port(ADDRESS)
    configuration = stage.write(
        "dovecot.conf",
        f"""base_dir = {stage.folder}/dovecot
state_dir = {stage.folder}/dovecot
log_path = {stage.folder}/dovecot-messages.log
protocols = imap
listen = {ADDRESS}
disable_plaintext_auth = no
auth_mechanisms = plain login
mail_max_userip_connections = 0
ssl = yes
ssl_cert = <{stage.certificate}
ssl_key = <{stage.key}
passdb {{
  driver = static
  args = proxy=y host={ADDRESS} port={stage.imap_server} nopassword=y
}}
service imap-login {{
  service_count = 0
  process_min_avail = 1
  process_limit = 1
  client_limit = {SESSIONS}
  vsz_limit = 4G
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
    ssl = yes
  }}
}}
service anvil {{
  client_limit = {CONNECTIONS}
}}
service auth {{
  client_limit = {CONNECTIONS}
}}
""",
    )
    pid = stage.run("dovecot", ["dovecot", "-F", "-c", str(configuration)], [imap, imaps])
    return [Peer("dovecot", imap, imaps, pid=pid)]


def start_gatepost(stage: Stage) -> list[Peer]:
    """Gatepost with one worker, its session log on, users and passwords in its directory.

    The same process three times: asked with Basic credentials, with the cookie of the sign-in page, and with that and
    the one by which a user stays with one of two servers.
    """
    imap, imaps, http, https = (free_port(ADDRESS) for _ in range(4))
    configuration = stage.write("gatepost.toml", gatepost_configuration(stage, imap, imaps, http, https))
    for left_over in stage.folder.glob("*.sqlite*"):  # of an earlier run that was kept
        left_over.unlink()
    gatepost = [stage.python, "-m", "gatepost"]
    quick, dear = password_hashes()
    users = str(stage.write("users.csv", users_csv(stage, quick, dear)))
    by_form = cookie_fields(stage.key, names_of("user", stage.users), PASSWORD, quick)
    kept = cookie_fields(stage.key, names_of("kept", stage.users), PASSWORD, quick, service="owa", server="WEB-02")
    for words in (["user", "import", users], ["database", "list"]):  # the second makes the registry
        subprocess.run([*gatepost, *words, "-c", str(configuration)], check=True, stdout=subprocess.DEVNULL)
    pid = stage.run("gatepost", [*gatepost, "serve", "-c", str(configuration)], [imap, imaps, http, https])
    stage.write("gatepost.pid", f"{pid}\n")  # for profile.sh
    return [
        Peer("gatepost", imap, imaps, http, https, pid),
        Peer("by cookie", https=https, pid=pid, cookies=stage.write("cookies", by_form)),
        Peer("affinity", https=https, pid=pid, cookies=stage.write("cookies-kept", kept)),
    ]


def gatepost_configuration(stage: Stage, imap: int, imaps: int, http: int, https: int) -> str:
    """One front end, one mailbox server in the same site, passwords in clear allowed for the clear measurements.

    The users `kept...` have their mailboxes at a server of 2010, which two web servers stand in front of.
    """
    secret = stage.write("master-password", "master-secret\n")
    return f"""[front_end]
server = "CAS-01"
directory = "{stage.folder}/directory.sqlite"
registry = "{stage.folder}/registry.sqlite"
certificate = "{stage.certificate}"
private_key = "{stage.key}"
workers = 1
allow_clear_passwords = true
log_file = "{stage.folder}/gatepost-sessions.log"
limits = {{ password_checks_per_address = 64 }}  # all users come from one

[organization]
name = "bench"
accepted_domains = ["{DOMAIN}"]

[sites.here]
internet_facing = true

[servers.CAS-01]
site = "here"
roles = ["client-access"]
address = "{ADDRESS}"
[servers.CAS-01.endpoints]
imap = {{ port = {imap} }}
imaps = {{ port = {imaps} }}
http = {{ port = {http}, tls = "clear" }}
https = {{ port = {https} }}

[servers.MBX-01]
site = "here"
roles = ["mailbox"]
address = "{ADDRESS}"
[servers.MBX-01.endpoints]
imap = {{ port = {stage.imap_server}, tls = "clear" }}
http = {{ port = {stage.http_server}, tls = "clear" }}
[servers.MBX-01.sign_in]
form = "master-name"
master_user = "gatepost"
master_password_file = "{secret}"
pipelined = true

[databases.DB01]
copies = [ {{ server = "MBX-01", preference = 1 }} ]

[[virtual_directories]]
server = "MBX-01"
service = "owa"
path = "/owa"
internal_url = "http://{ADDRESS}:{stage.http_server}/owa"
authentication = ["integrated", "basic"]

[[virtual_directories]]
server = "CAS-01"
service = "owa"
path = "/owa"
external_url = "https://mail.example.com/owa"
authentication = ["forms", "basic"]

[servers.MBX-02]
site = "here"
version = "2010"
roles = ["mailbox"]
address = "{ADDRESS}"
endpoints = {{ imap = {{ port = {stage.imap_server}, tls = "clear" }} }}

[databases.DB02]
copies = [ {{ server = "MBX-02", preference = 1 }} ]
{web_servers(stage)}"""


def web_servers(stage: Stage) -> str:
    """Two client access servers that are no front ends of ours: both are the stub."""
    return "".join(
        f"""
[servers.{name}]
site = "here"
version = "2010"
roles = ["client-access"]
address = "{ADDRESS}"
endpoints = {{ http = {{ port = {stage.http_server}, tls = "clear" }} }}

[[virtual_directories]]
server = "{name}"
service = "owa"
path = "/owa"
internal_url = "http://{ADDRESS}:{stage.http_server}/owa"
authentication = ["integrated", "basic"]
"""
        for name in ("WEB-01", "WEB-02")
    )


def names_of(prefix: str, count: int) -> list[str]:
    """User names as the load generator makes them."""
    return [f"{prefix}{i:04d}@{DOMAIN}" for i in range(count)]


def password_hashes() -> tuple[str, str]:
    """Of `PASSWORD`, cheap, so that warming the cache is quick; of `COLD_PASSWORD`, with the cost of real ones."""
    from argon2 import PasswordHasher

    cheap = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1)
    return cheap.hash(PASSWORD), PasswordHasher().hash(COLD_PASSWORD)


def users_csv(stage: Stage, quick: str, dear: str) -> str:
    """Warm users with a cheap hash, those who stay with a server the same, cold ones with a dear one."""
    lines = ["name,password_hash,database"]
    lines += [f'{name},"{quick}",DB01' for name in names_of("user", stage.users)]
    lines += [f'{name},"{quick}",DB02' for name in names_of("kept", stage.users)]
    lines += [f'{name},"{dear}",DB01' for name in names_of("cold", stage.cold_users)]
    return "\n".join(lines) + "\n"
