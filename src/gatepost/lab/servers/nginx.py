"""nginx as a web server behind the front door: TLS, a page that shows what reached it, and locations of one's own.

`/shows` answers with the user, the path and the forwarding headers as `name: value` lines, under every path that has no
location of its own. `/files/` serves the files below `files/` in its directory.
"""

from __future__ import annotations

from pathlib import Path

from gatepost.lab.servers.pki import CertificateFiles
from gatepost.lab.servers.process import ServerProcess, require_program

PACKAGES = ("nginx",)
SHOWN_HEADERS = (
    "host",
    "x-remote-user",
    "authorization",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "connection",
    "upgrade",
    "content-length",
    "transfer-encoding",
)


class Nginx(ServerProcess):
    """One nginx with one TLS and one clear port."""

    def __init__(
        self,
        directory: Path,
        address: str,
        port: int,
        certificate: CertificateFiles,
        *,
        clear_port: int,
        locations: str = "",
        name: str = "nginx",
    ) -> None:
        """`locations` is text of further `location` blocks. Raises `ServerMissing`."""
        program = require_program("nginx", PACKAGES)
        (directory / "files").mkdir(parents=True, exist_ok=True)
        # Its workers run as another account and pass through here to the files.
        directory.chmod(0o711)
        argv = [program, "-p", str(directory), "-e", str(directory / "error.log"), "-c", str(directory / "nginx.conf")]
        super().__init__(name, argv, directory, [(address, port), (address, clear_port)])
        self.address = address
        self.port = port
        self.clear_port = clear_port
        self.locations = locations
        self.extra_logs.append(directory / "error.log")
        shown = "".join(f"{header}: $http_{header.replace('-', '_')}\\n" for header in SHOWN_HEADERS)
        text = _CONFIGURATION.format(
            base=directory,
            address=address,
            port=port,
            clear_port=clear_port,
            certificate=certificate.certificate,
            key=certificate.private_key,
            page=f"server: {name}\\nmethod: $request_method\\npath: $request_uri\\n{shown}",
            locations=locations,
        )
        (directory / "nginx.conf").write_text(text)


_CONFIGURATION = """\
daemon off;
worker_processes 1;
pid {base}/nginx.pid;
error_log {base}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log {base}/access.log;
  client_body_temp_path {base}/body;
  proxy_temp_path {base}/proxy;
  fastcgi_temp_path {base}/fastcgi;
  uwsgi_temp_path {base}/uwsgi;
  scgi_temp_path {base}/scgi;
  default_type text/plain;
  server {{
    listen {address}:{port} ssl;
    listen {address}:{clear_port};
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    keepalive_requests 100000;
    location /files/ {{ root {base}; }}
    location / {{ return 200 "{page}"; }}
    {locations}
  }}
}}
"""
