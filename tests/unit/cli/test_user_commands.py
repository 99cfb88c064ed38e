"""`gatepost user` and `gatepost database` as an operator uses them: effects, words, exit statuses, no secrets."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import argon2
import pytest

from gatepost.activemanager.sqlite import SqliteRegistry
from gatepost.cli.main import COMMANDS, run
from gatepost.directory import passwords
from gatepost.directory.editing import DirectoryEditor, Entry
from gatepost.organization.model import CLIENT_PROTOCOLS, Protocol

CONFIGURATION = """
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]
[sites.usa]
internet_facing = true
[servers.CAS-01]
site = "usa"
roles = ["client-access"]
[servers.CAS-01.endpoints]
imap = { port = 1143, tls = "clear" }
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
[servers.MBX-01.endpoints]
imap = { tls = "clear" }
[servers.MBX-02]
site = "usa"
roles = ["mailbox"]
[servers.MBX-02.endpoints]
imap = { tls = "clear" }
[databases.DB01]
copies = [ { server = "MBX-02", preference = 2 }, { server = "MBX-01", preference = 1 } ]
[databases.DB02]
copies = [ { server = "MBX-02", preference = 1 } ]
"""

CHEAP = argon2.PasswordHasher(1, 8, 1)
HASH = CHEAP.hash("imported")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gatepost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command; answers exit status, standard output and standard error."""
    (tmp_path / "gatepost.toml").write_text(CONFIGURATION)
    monkeypatch.setenv("GATEPOST_CONFIG", str(tmp_path / "gatepost.toml"))
    cheap_hash = passwords.make_hash
    for module in ("gatepost.cli.user", "gatepost.cli.user_import"):
        monkeypatch.setattr(f"{module}.make_hash", lambda password: cheap_hash(password, CHEAP))

    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        text = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
        monkeypatch.setattr(sys, "stdin", text)
        status = run(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def entry(tmp_path: Path) -> Callable[[str], Entry]:
    def get(name: str) -> Entry:
        with DirectoryEditor(str(tmp_path / "directory.sqlite")) as editor:
            return editor.get(name)

    return get


@pytest.fixture
def anna(gatepost: Run) -> None:
    done = gatepost(
        "user", "add", "Anna", "--database", "DB01", "--address", "sales", "--password-stdin", stdin=b"apple\n"
    )
    assert done == (0, "added anna@contoso.com\n", "")


Get = Callable[[str], Entry]


@pytest.mark.usefixtures("anna")
def test_add(entry: Get) -> None:
    found = entry("anna@contoso.com")
    assert found.addresses == ("sales@contoso.com",)
    assert found.user.mailbox.database == "DB01"
    assert found.user.protocols == frozenset(CLIENT_PROTOCOLS)
    assert passwords.check(found.user.password_hash, (b"apple",))


@pytest.mark.parametrize(
    ("typed", "password"), [(b"a b \n", b"a b "), (b"x\r\n", b"x"), (b"x", b"x"), (b" \xc3\xa9", " é".encode())]
)
def test_a_password_keeps_its_spaces(gatepost: Run, entry: Get, tmp_path: Path, typed: bytes, password: bytes) -> None:
    (tmp_path / "secret").write_bytes(typed)
    gatepost("user", "add", "a", "--database", "DB01", "--password-stdin", stdin=typed)
    gatepost("user", "add", "b", "--database", "DB01", "--password-file", str(tmp_path / "secret"))
    for name in ("a@contoso.com", "b@contoso.com"):
        assert passwords.check(entry(name).user.password_hash, (password,))


@pytest.mark.usefixtures("anna")
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["add", "anna", "--database", "DB01", "--no-password"], 1, "there is a user called anna@contoso.com already"),
        (["add", "b", "--database", "DB01", "--address", "SALES", "--no-password"], 1, "belongs to anna@contoso.com"),
        (["add", "b", "--database", "DB09", "--no-password"], 1, "no database DB09 (it has: DB01, DB02)"),
        (["add", "b", "--home-server", "MBX-09", "--no-password"], 1, "no server MBX-09"),
        (["add", "b", "--database", "DB01", "--home-server", "MBX-01", "--no-password"], 2, "not both"),
        (["add", "b", "--no-password"], 2, "--database or --home-server"),
        (["add", "b", "--database", "DB01"], 2, "--password-stdin or --password-file"),
        (["add", "b", "--database", "DB01", "--password-stdin"], 1, "1 to 1024 bytes"),
        (["add", "b", "--database", "DB01", "--password-file", "/nowhere"], 1, "No such file"),
        (["add", "two words", "--database", "DB01", "--no-password"], 1, "no login name"),
        (["set", "anna"], 2, "say what to change"),
        (["set", "nobody", "--disabled"], 1, "nobody@contoso.com"),
        (["set", "sales", "--disabled"], 1, "name the user as anna@contoso.com"),
        (["set", "anna", "--remove-address", "x"], 1, "x@contoso.com is not a further address"),
        (["show", "nobody"], 1, "nobody@contoso.com"),
        (["list", "--database", "DB09"], 1, "no database DB09 (it has: DB01, DB02)"),
        (["remove", "sales"], 1, "name the user as anna@contoso.com"),
        (["remove", "nobody"], 1, "nobody@contoso.com"),
    ],
)
def test_what_is_refused(gatepost: Run, entry: Get, arguments: list[str], status: int, words: str) -> None:
    """With a reason, the right status, and nothing changed."""
    before = entry("anna@contoso.com")
    got, out, err = gatepost("user", *arguments)
    assert (got, out) == (status, "")
    assert words in err
    assert "Traceback" not in err
    assert entry("anna@contoso.com") == before
    assert gatepost("user", "list")[1].count("\n") == 1


@pytest.mark.usefixtures("anna")
def test_set_changes_what_is_named_and_nothing_else(gatepost: Run, entry: Get) -> None:
    before = entry("anna@contoso.com").user
    done = gatepost(
        "user", "set", "ANNA", "--disabled", "--protocol", "imap", "--login-at-server", "a.nna", "--add-address", "a2",
        "--remove-address", "sales", "--database", "DB02",
    )  # fmt: skip
    assert done == (0, "changed anna@contoso.com\n", "")
    after = entry("anna@contoso.com")
    assert (after.user.disabled, after.user.login_at_server) == (True, "a.nna")
    assert (after.user.protocols, after.user.mailbox.database) == (frozenset({Protocol.IMAP}), "DB02")
    assert after.addresses == ("a2@contoso.com",)
    assert after.user.password_hash == before.password_hash
    gatepost("user", "set", "anna", "--enabled", "--login-at-server", "")
    user = entry("anna@contoso.com").user
    assert (user.disabled, user.login_at_server, user.protocols) == (False, "", frozenset({Protocol.IMAP}))
    gatepost("user", "set", "anna", "--password-stdin", stdin=b"pear")
    assert passwords.check(entry("anna@contoso.com").user.password_hash, (b"pear",))
    gatepost("user", "set", "anna", "--no-password")
    assert entry("anna@contoso.com").user.password_hash == ""


@pytest.mark.usefixtures("anna")
def test_whom_a_user_may_send_as(gatepost: Run, entry: Get) -> None:
    """Addresses and domains, in one form each; what is not there cannot be taken away."""
    done = gatepost("user", "set", "anna", "--add-send-as", "Bob", "--add-send-as", "*@News.example")
    assert done == (0, "changed anna@contoso.com\n", "")
    assert entry("anna@contoso.com").user.send_as == ("bob@contoso.com", "@news.example")
    assert "send as:          bob@contoso.com @news.example\n" in gatepost("user", "show", "anna")[1]
    gatepost("user", "set", "anna", "--add-send-as", "bob", "--remove-send-as", "@news.example")
    assert entry("anna@contoso.com").user.send_as == ("bob@contoso.com",)
    status, _, said = gatepost("user", "set", "anna", "--remove-send-as", "carol")
    assert (status, said) == (1, "gatepost: anna@contoso.com has no grant to send as carol@contoso.com\n")
    status, _, said = gatepost("user", "set", "anna", "--add-send-as", "@")
    assert status != 0
    assert "is no address and no domain" in said
    gatepost("user", "add", "otto", "--database", "DB01", "--no-password", "--send-as", "@contoso.com")
    assert entry("otto@contoso.com").user.send_as == ("@contoso.com",)
    lines = b"name,database,send_as\nida,DB01,bob @news.example\n"
    assert gatepost("user", "import", "-", stdin=lines)[0] == 0
    assert entry("ida@contoso.com").user.send_as == ("bob@contoso.com", "@news.example")


@pytest.mark.usefixtures("anna")
def test_show_and_list(gatepost: Run) -> None:
    """By any address; for people and for programs; never the hash."""
    gatepost("user", "add", "otto", "--home-server", "MBX-01", "--disabled", "--no-password", "--protocol", "pop3")
    assert "sales@contoso.com" in gatepost("user", "show", "SALES")[1]
    shown = json.loads(gatepost("user", "show", "sales", "--json")[1])
    assert (shown["name"], shown["database"], shown["disabled"]) == ("anna@contoso.com", "DB01", False)
    listed = json.loads(gatepost("user", "list", "--json")[1])
    assert [user["name"] for user in listed] == ["anna@contoso.com", "otto@contoso.com"]
    assert gatepost("user", "list", "--database", "DB01")[1].split()[0] == "anna@contoso.com"
    assert "disabled" in gatepost("user", "list")[1].splitlines()[1]
    everything = "".join(
        gatepost("user", *a)[1] for a in (["show", "anna"], ["show", "anna", "--json"], ["list"], ["list", "--json"])
    )
    assert "argon2" not in everything


@pytest.mark.usefixtures("anna")
def test_users_of_a_database_that_is_no_more_are_listed(gatepost: Run, tmp_path: Path) -> None:
    """They must be found to be moved; an empty database of the organization is no fault."""
    file = tmp_path / "gatepost.toml"
    assert gatepost("user", "list", "--database", "DB02") == (0, "", "")
    file.write_text(CONFIGURATION.replace("databases.DB01", "databases.DB05"))
    assert gatepost("user", "list", "--database", "DB01")[1].split()[0] == "anna@contoso.com"
    assert gatepost("user", "list", "--database", "DB03")[0] == 1


@pytest.mark.usefixtures("anna")
def test_a_domain_that_is_not_accepted_is_warned_of(gatepost: Run, tmp_path: Path) -> None:
    """The user is stored: the domain may be accepted later. A slip of the pen is seen at once."""
    warning = "warning: not an accepted domain: fabrikam.com (accepted_domains has: contoso.com)\n"
    add = ("user", "add", "otto@fabrikam.com", "--database", "DB01", "--no-password")
    assert gatepost(*add) == (0, "added otto@fabrikam.com\n", warning)
    assert gatepost("user", "set", "anna", "--add-address", "a@Fabrikam.com") == (
        0,
        "changed anna@contoso.com\n",
        warning,
    )
    assert gatepost("user", "set", "anna", "--disabled")[2] == ""
    data = b"name,database,addresses\nx,DB01,\ny@tailspin.com,DB01,y@fabrikam.com z@fabrikam.com\n"
    status, out, err = gatepost("user", "import", "-", stdin=data)
    assert (status, out) == (0, "users imported: 2\n")
    assert err == warning.replace("fabrikam.com", "fabrikam.com, tailspin.com")
    file = tmp_path / "gatepost.toml"
    file.write_text(CONFIGURATION.replace('accepted_domains = ["contoso.com"]', ""))
    assert gatepost("user", "add", "p@fabrikam.com", "--database", "DB01", "--no-password")[2] == ""


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_file_with_other_separators_gets_a_hint(gatepost: Run, separator: str, word: str) -> None:
    """What a spreadsheet writes where the comma is the decimal sign."""
    data = "name,database,password_hash\nx,DB01,\n".replace(",", separator).encode()
    status, out, err = gatepost("user", "import", "-", stdin=data)
    assert (status, out) == (1, "")
    assert err == f"gatepost: line 1: the columns are separated by {word}; separate them with commas\n"


@pytest.mark.usefixtures("anna")
def test_show_names_a_hash_of_another_cost(gatepost: Run) -> None:
    assert "best set again" in gatepost("user", "show", "anna")[1]


@pytest.mark.usefixtures("anna")
def test_remove(gatepost: Run) -> None:
    assert gatepost("user", "remove", "anna") == (0, "removed anna@contoso.com\n", "")
    assert gatepost("user", "list") == (0, "", "")


def csv(*lines: str) -> bytes:
    return ("\r\n".join(lines) + "\r\n").encode("utf-8-sig")


def test_import_with_hashes_and_passwords(gatepost: Run, entry: Get) -> None:
    data = csv(
        "name,database,home_server,addresses,protocols,password,password_hash,disabled,login_at_server",
        f'Anna,DB01,,"sales info",imap pop3,,"{HASH}",no,anna.s',
        'otto@fabrikam.com,,MBX-01,,," spaced, ""quoted"" ",,YES,',
        "zoe,DB02,,,,,,,",
    )
    assert gatepost("user", "import", "-", stdin=data)[:2] == (0, "users imported: 3\n")
    anna, otto, zoe = entry("anna@contoso.com"), entry("otto@fabrikam.com"), entry("zoe@contoso.com")
    assert anna.user.password_hash == HASH
    assert anna.addresses == ("info@contoso.com", "sales@contoso.com")
    assert (anna.user.protocols, anna.user.login_at_server) == (frozenset({Protocol.IMAP, Protocol.POP3}), "anna.s")
    assert passwords.check(otto.user.password_hash, (b' spaced, "quoted" ',))
    assert (otto.user.disabled, otto.user.mailbox.home_server) == (True, "MBX-01")
    assert (zoe.user.password_hash, zoe.user.disabled, zoe.user.protocols) == ("", False, frozenset(CLIENT_PROTOCOLS))


FAULTY = csv(
    "name,database,home_server,addresses,protocols,password_hash,disabled",
    "good,DB01,,,,,",
    "bad1,,,,,,",
    "bad2,DB09,,,,,",
    "two words,DB01,,,,,",
    "bad3,DB01,,,telnet,,",
    "bad4,DB01,,,,$1$md5,",
    "bad5,DB01,,,,,perhaps",
    "good,DB01,,,,,",
    "bad6,DB01,,good,,,",
    "bad7,DB01",
    "bad8,DB01,,,,,,,",
    "fine,DB02,,,,,",
)


def test_import_is_all_or_nothing_and_names_every_line(gatepost: Run) -> None:
    status, out, err = gatepost("user", "import", "-", stdin=FAULTY)
    assert (status, out) == (1, "")
    assert [line.split(":")[0] for line in err.splitlines()[:-1]] == [f"line {n}" for n in range(3, 13)]
    assert "nothing was imported, faults: 10" in err
    assert gatepost("user", "list")[1] == ""


def test_import_can_skip_faulty_lines(gatepost: Run) -> None:
    status, out, err = gatepost("user", "import", "-", "--skip-faulty", stdin=FAULTY)
    assert (status, out) == (0, "users imported: 2, faulty lines skipped: 10\n")
    assert err.count("line ") == 10
    assert [line.split("@")[0] for line in gatepost("user", "list")[1].splitlines()] == ["fine", "good"]


def test_import_with_passwords_skips_too(gatepost: Run, entry: Get) -> None:
    """A name that is there twice is imported once, with the first line's password."""
    data = csv("name,database,password", "a,DB01,one", "a,DB01,two", "b,DB01," + "x" * 2000, "c,DB01,three")
    assert gatepost("user", "import", "-", stdin=data)[0] == 1
    status, out, err = gatepost("user", "import", "-", "--skip-faulty", stdin=data)
    assert (status, out) == (0, "users imported: 2, faulty lines skipped: 2\n")
    assert "x" * 20 not in err
    assert passwords.check(entry("a@contoso.com").user.password_hash, (b"one",))


@pytest.mark.parametrize("columns", ["name,database", "name,database,password"])
def test_a_dry_run_changes_nothing(gatepost: Run, columns: str) -> None:
    data = csv(columns, *(f"u{n},DB01,x"[: 7 if columns.count(",") == 1 else 9] for n in range(3)))
    assert gatepost("user", "import", "-", "--dry-run", stdin=data) == (0, "users that would be imported: 3\n", "")
    assert gatepost("user", "list")[1] == ""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no column `name`"),
        (b"name,database,color\r\na,DB01,red\r\n", "unknown column 'color'"),
        (b"name,name\r\n", "twice"),
        (b'name,database\r\n"a,DB01', "not CSV"),
        (b"name,database\r\n\xff\xfe,DB01\r\n", "not UTF-8"),
        (b"\xff\xfename\r\n", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_such_csv(gatepost: Run, data: bytes, words: str) -> None:
    status, out, err = gatepost("user", "import", "-", stdin=data)
    assert (status, out) == (1, "")
    assert words in err


def test_many_users_in_seconds(gatepost: Run) -> None:
    lines = (f"user{n},DB01,u{n}@fabrikam.com,{HASH}" for n in range(10_000))
    quoted = (line.replace(HASH, f'"{HASH}"') for line in lines)
    assert gatepost("user", "import", "-", stdin=csv("name,database,addresses,password_hash", *quoted))[1] == (
        "users imported: 10000\n"
    )


def test_database_list_activates_first_choices(gatepost: Run, tmp_path: Path) -> None:
    listed = json.loads(gatepost("database", "list", "--json")[1])
    assert listed == [
        {"database": "DB01", "active": "MBX-01", "epoch": 1, "copies": ["MBX-01", "MBX-02"]},
        {"database": "DB02", "active": "MBX-02", "epoch": 1, "copies": ["MBX-02"]},
    ]
    assert gatepost("database", "list")[1].splitlines()[0].split() == [
        "DB01", "active", "on", "MBX-01,", "epoch", "1", "copies:", "MBX-01,", "MBX-02",
    ]  # fmt: skip
    assert set(SqliteRegistry(str(tmp_path / "registry.sqlite")).view().active) == {"DB01", "DB02"}


def test_activate_moves_and_says_so(gatepost: Run) -> None:
    gatepost("database", "list")
    moved = gatepost("database", "activate", "DB01", "--server", "MBX-02")
    assert moved == (0, "DB01: MBX-01 (epoch 1) → MBX-02 (epoch 2)\n", "")
    again = gatepost("database", "activate", "DB01", "--server", "MBX-02")
    assert again == (0, "DB01 is active on MBX-02 already, epoch 2\n", "")


def test_activate_as_the_first_thing(gatepost: Run) -> None:
    moved = gatepost("database", "activate", "DB01", "--server", "MBX-02")
    assert moved == (0, "DB01: nowhere (epoch 0) → MBX-02 (epoch 1)\n", "")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["DB09", "--server", "MBX-01"], 1, "no database DB09"),
        (["DB02", "--server", "MBX-01"], 1, "MBX-01 has no copy of DB02; copies are on MBX-02"),
        (["DB01", "--server", "MBX-02", "--expected-epoch", "7"], 1, "DB01 is at epoch 1, not 7"),
        (["DB01", "--server", "MBX-02", "--expected-epoch", "-1"], 2, "expected-epoch"),
        (["DB01"], 2, "--server"),
    ],
)
def test_activate_refuses(gatepost: Run, arguments: list[str], status: int, words: str) -> None:
    gatepost("database", "list")
    before = gatepost("database", "list")
    got, out, err = gatepost("database", "activate", *arguments)
    assert (got, out) == (status, "")
    assert words in err
    assert gatepost("database", "list") == before


def test_a_damaged_directory_is_one_line(gatepost: Run, tmp_path: Path) -> None:
    (tmp_path / "directory.sqlite").write_bytes(b"garbage" * 1000)
    status, out, err = gatepost("user", "list")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "directory.sqlite: damaged" in err


def test_a_missing_or_faulty_configuration_is_said(gatepost: Run, tmp_path: Path) -> None:
    status, _, err = gatepost("user", "list", "-c", str(tmp_path / "nowhere.toml"))
    assert status == 1
    assert "nowhere.toml" in err
    (tmp_path / "gatepost.toml").write_text(CONFIGURATION.replace('site = "usa"', 'site = "mars"', 1))
    status, _, err = gatepost("user", "list")
    assert status == 1
    assert "mars" in err
    assert "Traceback" not in err


def test_a_fault_that_nobody_expected_shows_its_traceback(monkeypatch: pytest.MonkeyPatch, gatepost: Run) -> None:
    """A bug must not look like an operator's mistake."""

    def fail(_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("gatepost.cli.user.open_stores", fail)
    with pytest.raises(ZeroDivisionError):
        gatepost("user", "list")


def test_interrupted_is_one_line(monkeypatch: pytest.MonkeyPatch, gatepost: Run) -> None:
    def interrupt(_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("gatepost.cli.user.open_stores", interrupt)
    status, out, err = gatepost("user", "list")
    assert (status, out) == (130, "")
    assert err.strip().splitlines()[-1] == "gatepost: interrupted"


def test_usage_and_help(gatepost: Run) -> None:
    assert gatepost("nonsense")[0] == 2
    assert gatepost("user", "nonsense")[0] == 2
    status, out, _ = gatepost("--help")
    assert status == 0
    assert all(name in out for name in COMMANDS)
    assert gatepost("--version")[1].startswith("gatepost ")


def test_help_starts_fast() -> None:
    """No sub-command and no store is imported for it."""
    code = "import sys; from gatepost.cli.main import run; run(['--help']); print([m for m in sys.modules if m in %r])"
    heavy = ("apsw", "argon2", "pydantic", "uvloop", "jwt", "gatepost.cli.user")
    out = subprocess.run(
        [sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, timeout=30, check=True
    )
    assert out.stdout.splitlines()[-1] == "[]"


def test_a_prompted_password_is_not_shown(monkeypatch: pytest.MonkeyPatch, gatepost: Run, entry: Get) -> None:
    monkeypatch.setattr("gatepost.cli.options.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    answers = iter(["apple", "apple"])
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda _: next(answers))
    status, out, err = gatepost("user", "add", "anna", "--database", "DB01")
    assert status == 0
    assert "apple" not in out + err
    assert passwords.check(entry("anna@contoso.com").user.password_hash, (b"apple",))
