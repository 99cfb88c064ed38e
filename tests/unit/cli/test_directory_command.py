"""`gatepost directory check`: the embedded file, services that answer or do not, users with something wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from gatepost.cli.main import command

TOML = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
allow_clear_passwords = true
{directories}
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
internet_facing = true
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
endpoints = {{ imap = {{ tls = "clear" }} }}
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
endpoints = {{ imap = {{ tls = "clear" }} }}
[databases.DB01]
copies = [{{ server = "MBX-01" }}]
"""
USERS: dict[str, dict[str, Any]] = {
    "anna@contoso.com": {"name": "anna@contoso.com", "database": "DB01", "password_hash": "{ROT13}x", "disabled": True},
    "otto@contoso.com": {"name": "otto@contoso.com"},
}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        name = json.loads(self.rfile.read(int(self.headers["content-length"])))["name"]
        body = json.dumps({"user": USERS.get(name)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Where the service is."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def run(folder: Path, directories: str, *words: str) -> tuple[int, list[str]]:
    """Exit status and lines."""
    file = folder / "gatepost.toml"
    file.write_text(TOML.format(directories=directories))
    done = CliRunner().invoke(command, ["directory", "check", *words, "-c", str(file)], standalone_mode=False)
    assert done.exception is None, done.output
    return int(done.return_value), done.output.splitlines()


def service(name: str, *urls: str, more: str = "") -> str:
    return (
        f'[[front_end.directories]]\nname = "{name}"\n{more}\n[front_end.directories.http]\nurls = {json.dumps(urls)}\n'
    )


def test_every_server_answers_for_itself(tmp_path: Path, port: int) -> None:
    """The second is not asked in the place of the first."""
    urls = ("http://127.0.0.1:1/x", f"http://127.0.0.1:{port}/x")
    status, lines = run(tmp_path, service("web", *urls), "sales@contoso.com")
    assert status == 1
    assert lines[0].startswith("web http://127.0.0.1:1/x: no answer: ")
    assert lines[1].startswith(f"web http://127.0.0.1:{port}/x: sales@contoso.com is nobody's, in ")


def test_what_is_wrong_with_a_user_is_said(tmp_path: Path, port: int) -> None:
    table = service("web", f"http://127.0.0.1:{port}/x")
    status, (line,) = run(tmp_path, table, "anna")
    assert status == 0
    assert "anna@contoso.com is anna@contoso.com, database DB01, protocols " in line
    assert "disabled" in line
    assert "no usable password" in line
    assert "ROT13" in line
    assert "otto@contoso.com is nobody's; no database" in run(tmp_path, table, "otto")[1][0]


def test_a_directory_of_other_domains_is_not_asked(tmp_path: Path, port: int) -> None:
    table = service("web", f"http://127.0.0.1:{port}/x", more='domains = ["fabrikam.com"]')
    assert run(tmp_path, table, "anna") == (0, ["web: not asked: it has fabrikam.com only"])


def test_the_file_that_is_not_there(tmp_path: Path) -> None:
    status, (line,) = run(tmp_path, "", "anna")
    assert status == 1
    assert "directory.sqlite: no answer: " in line
