"""Changing the text of an organization's file: what changes, what stays, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatepost.configuration.build import build_organization
from gatepost.configuration.editing import EditingFault, OrganizationText, directory_keys
from gatepost.configuration.schema import OrganizationFile
from gatepost.organization.model import Organization, VirtualDirectory

CONTOSO = (Path(__file__).parents[3] / "examples/contoso.toml").read_text()

COMMENTED = """\
# The organization.
[organization]
name = "contoso"   # its name

[sites.usa]

# Front ends
[servers.CAS-01]
site = "usa"
roles = ["client-access"]  # and nothing else

# Mailbox servers
[servers.MBX-01]
site = "usa"
roles = ["mailbox"]
[servers.MBX-01.endpoints]
imap = { tls = "clear" }

# Databases
[databases.DB01]
copies = [
  { server = "MBX-01", preference = 1 },  # the first
]
# The end.
"""


def organization(text: str) -> Organization:
    data = tomllib.loads(text)
    data.pop("front_end", None)
    return build_organization(OrganizationFile.model_validate(data), {})


def directory(text: str, server: str, service: str) -> VirtualDirectory:
    found = organization(text).virtual_directories
    return next(d for d in found if (d.server, d.service) == (server, service))


def lines_changed(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_a_new_key_stands_behind_the_others_and_before_the_next_tables_comment() -> None:
    """Nothing else moves."""
    text = OrganizationText(COMMENTED)
    text.set_keys(("servers", "CAS-01"), {"address": "127.0.0.1"})
    assert text.text() == COMMENTED.replace("nothing else\n", 'nothing else\naddress = "127.0.0.1"\n')


def test_a_new_table_stands_behind_its_like() -> None:
    """Before the comment of what follows."""
    text = OrganizationText(COMMENTED)
    text.add_table(("servers", "CAS-02"), {"site": "usa", "roles": ["client-access"], "endpoints": {"imaps": {}}})
    added = '\n[servers.CAS-02]\nsite = "usa"\nroles = ["client-access"]\nendpoints = { imaps = {} }\n\n# Databases\n'
    assert text.text() == COMMENTED.replace("\n# Databases\n", added)


def test_a_removed_table_leaves_the_comment_of_the_next_one() -> None:
    """What stands above a table belongs to it."""
    text = OrganizationText(COMMENTED)
    text.remove_table(("servers", "CAS-01"))
    after = text.text()
    assert "# Mailbox servers\n[servers.MBX-01]" in after
    assert lines_changed(COMMENTED, after)[1] == []


def test_the_first_of_a_kind_makes_its_tables() -> None:
    """And the last one takes them away."""
    text = OrganizationText(COMMENTED)
    text.add_table(("arrays", "USA"), {"site": "usa", "fqdn": "outlook.contoso.com", "members": []})
    added = '[arrays.USA]\nsite = "usa"\nfqdn = "outlook.contoso.com"\nmembers = []\n'
    assert added in text.text()
    assert text.text().replace(added, "").split() == COMMENTED.split()
    text.remove_table(("arrays", "USA"))
    assert tomllib.loads(text.text()) == tomllib.loads(COMMENTED)


def test_preferences_change_in_place() -> None:
    """The list keeps its lines and comments."""
    text = OrganizationText(COMMENTED)
    text.set_copies("DB01", [{"server": "MBX-01", "preference": 7}])
    assert text.text() == COMMENTED.replace("preference = 1", "preference = 7")


def test_long_lists_of_copies_have_one_copy_a_line() -> None:
    """Short ones one line."""
    text = OrganizationText(COMMENTED)
    copies = [{"server": f"MBX-0{n}", "preference": n} for n in range(1, 6)]
    text.set_copies("DB01", copies)
    assert sum(line.strip().startswith("{ server") for line in text.text().splitlines()) == 5
    text.set_copies("DB01", copies[:2])
    short = 'copies = [{ server = "MBX-01", preference = 1 }, { server = "MBX-02", preference = 2 }]'
    assert short in text.text()


def test_lists_of_inline_tables_are_changed_too() -> None:
    """Directories may be written so; dotted keys for servers as well."""
    written = (
        'virtual_directories = [{ server = "CAS-01", service = "owa" }]\n'
        'servers.CAS-01 = { site = "usa", roles = ["client-access"], endpoints = { https = {} } }\n'
        '[organization]\nname = "contoso"\n[sites.usa]\n'
    )
    text = OrganizationText(written)
    text.set_directory(directory(written, "CAS-01", "owa"), {"external_url": "https://x/owa"}, organization(written))
    text.add_directory({"server": "CAS-01", "service": "ecp"}, organization(written))
    text.set_keys(("servers", "CAS-01"), {"address": "127.0.0.1"})
    data = tomllib.loads(text.text())
    assert data["virtual_directories"] == [
        {"server": "CAS-01", "service": "owa", "external_url": "https://x/owa"},
        {"server": "CAS-01", "service": "ecp"},
    ]
    assert data["servers"]["CAS-01"]["address"] == "127.0.0.1"


def test_a_standard_set_that_is_written_out_means_the_same() -> None:
    """For every server of the example: the same organization, whatever its version."""
    for version in ("2003", "2007", "2010", "modern"):
        before = CONTOSO.replace('site = "asia"\nroles', f'site = "asia"\nversion = "{version}"\nroles')
        text = OrganizationText(before)
        for server in ("CAS-03", "MBX-01", "MBX-03"):
            text.write_out(server, organization(before))
        after = organization(text.text())
        assert set(after.virtual_directories) == set(organization(before).virtual_directories)


def test_keys_of_a_directory_mean_that_directory() -> None:
    """Written by hand with everything unusual."""
    keys = {
        "server": "CAS-01",
        "service": "owa",
        "path": "/mail",
        "internal_url": "https://a/mail",
        "external_url": "https://b/mail",
        "internal_bypass_url": "https://c/mail",
        "authentication": ["basic", "forms"],
        "name": "mail (Second Site)",
        "path_class": "api",
        "redirect_to_optimal_owa_server": False,
        "cross_site_redirect": "silent",
    }
    text = OrganizationText(COMMENTED)
    text.add_directory(keys, organization(COMMENTED))
    assert directory_keys(directory(text.text(), "CAS-01", "owa")) == keys


def test_what_cannot_be_written_safely_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is compared with what was meant before anybody writes it."""
    text = OrganizationText(COMMENTED)
    text.set_keys(("servers", "CAS-01"), {"address": "127.0.0.1"})
    text.data["servers"]["CAS-01"]["address"] = "127.0.0.2"
    with pytest.raises(EditingFault, match="by hand"):
        text.text()


_names = st.sampled_from(["CAS-01", "CAS-02", "CAS-03", "MBX-01"])
_services = st.sampled_from(["owa", "ecp", "EWS", "OAB", "x y"])
_actions = st.lists(st.tuples(st.sampled_from(["set", "add", "remove", "table", "drop", "copies"]), _names, _services))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=15)
@given(_actions)
def test_any_row_of_changes_keeps_every_comment_and_all_other_lines(actions: list[tuple[str, str, str]]) -> None:
    """Whatever is done: the text says what was meant, and every comment of before is still there."""
    text = OrganizationText(CONTOSO)
    known = organization(CONTOSO)
    for number, (action, server, service) in enumerate(actions):
        entries = [d for d in known.virtual_directories if d.server == server]
        if action == "set" and entries:
            text.set_directory(entries[0], {"external_url": f"https://x/{number}"}, known)
        elif action == "add" and server in known.servers and service not in {d.service for d in entries}:
            text.add_directory({"server": server, "service": service}, known)
        elif action == "remove" and len(entries) > 1:
            text.remove_directory(entries[-1], known)
        elif action == "table":
            text.add_table(("arrays", f"A{number}"), {"site": "usa", "fqdn": "a.contoso.com", "members": [server]})
        elif action == "drop" and server in known.servers and server != "MBX-01":
            text.remove_directories_of(server)
            text.remove_table(("servers", server))
        elif action == "copies":
            copies = [{"server": s, "preference": n} for n, s in enumerate(("MBX-01", "MBX-03")[: number % 2 + 1], 1)]
            text.set_copies("DB01", copies)
        known = organization(text.text())
    after = text.text()
    comments = [line for line in CONTOSO.splitlines() if line.startswith("#")]
    assert [line for line in after.splitlines() if line.startswith("#")] == comments
