"""`gatepost ca`: the CA by which front ends know each other, and what OpenSSL makes of it."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from gatepost.cli.ca import command
from gatepost.cli.main import COMMANDS
from gatepost.configuration.load import load

ORGANIZATION = """\
[organization]
name = "contoso"
accepted_domains = ["contoso.com"]

[sites.usa]

[servers.CAS-01]
site = "usa"
roles = ["client-access"]
fqdn = "cas-01.contoso.com"
address = "127.0.1.1"

[servers.CAS-01.endpoints]
imap = {}
peer = { tls_name = "cas-01.inside.contoso.com", address = "127.0.1.9" }

[servers.CAS-02]
site = "usa"
roles = ["client-access"]
fqdn = "cas-02.contoso.com"

[servers.CAS-02.endpoints]
imap = {}

[servers.HUB-01]
site = "usa"
roles = ["hub-transport"]
fqdn = "hub-01.contoso.com"

[servers.HUB-01.endpoints]
smtp = {}

[servers.MBX-01]
site = "usa"
roles = ["mailbox"]

[servers.MBX-01.endpoints]
imap = {}
"""

FRONT_END = """\
[front_end]
server = "CAS-01"
directory = "directory.sqlite"
registry = "registry.sqlite"
certificate = "ca/cas-01-peer.crt"
private_key = "ca/cas-01-peer.key"
peer_certificate = "ca/cas-01-peer.crt"
peer_private_key = "ca/cas-01-peer.key"
organization_ca = "ca/organization-ca.crt"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration that names certificates that are still to be made."""
    file = tmp_path / "gatepost.toml"
    file.write_text(FRONT_END + ORGANIZATION)
    return file


def ca(*arguments: object, status: int = 0) -> Result:
    """Run the command."""
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A CA."""
    ca("init", tmp_path / "ca", "--name", "contoso")
    return tmp_path / "ca"


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_init_makes_a_ca_that_signs_leaves_only(folder: Path) -> None:
    """Its key is its owner's alone, and it can make no further CA."""
    made = certificate(folder / "organization-ca.crt")
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert (usage.key_cert_sign, usage.digital_signature) == (True, False)
    assert (folder / "organization-ca.key").stat().st_mode & 0o777 == 0o600
    assert (folder / "organization-ca.crt").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o700


def test_init_never_replaces_a_ca(folder: Path) -> None:
    """A new one would make every front end a stranger to the others."""
    before = (folder / "organization-ca.key").read_bytes()
    assert "is there already" in ca("init", folder, status=1).output
    (folder / "organization-ca.crt").unlink()
    ca("init", folder, status=1)
    assert (folder / "organization-ca.key").read_bytes() == before


def test_a_front_ends_certificate_names_it_and_serves_both_ways(folder: Path, file: Path) -> None:
    """Its full name, what peers connect to, the server's own URI; for servers and clients of TLS."""
    output = ca("issue", "CAS-01", "-c", file, "--ca", folder).output
    made = certificate(folder / "cas-01-peer.crt")
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["cas-01.contoso.com", "cas-01.inside.contoso.com"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.1.1", "127.0.1.9"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["gatepost:server:CAS-01"]
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 397
    assert (folder / "cas-01-peer.key").stat().st_mode & 0o777 == 0o600
    assert 'peer_certificate = "cas-01-peer.crt"' in output
    assert "peer = {}" not in output


def test_what_it_says_to_write_makes_a_configuration_without_faults(folder: Path, file: Path) -> None:
    """The certificates are made from a configuration that cannot be used before they are there."""
    assert load(str(file)).errors == 4
    ca("issue", "CAS-01", "-c", file, "--ca", folder)
    loaded = load(str(file))
    assert loaded.errors == 0
    assert loaded.require().front_end.peer_keys is not None


def test_a_front_end_without_a_peer_endpoint_is_told_of_it(folder: Path, file: Path) -> None:
    """It can send to others with what it has got; to be asked itself it needs the endpoint."""
    assert "peer = {}" in ca("issue", "CAS-02", "-c", file, "--ca", folder).output


@pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
def test_openssl_verifies_the_chain_for_both_purposes(folder: Path, file: Path, tmp_path: Path) -> None:
    """A second opinion; a certificate of another CA fails."""
    ca("issue", "CAS-01", "-c", file, "--ca", folder)
    ca("init", tmp_path / "other")

    def verify(authority: Path, *options: str) -> int:
        argv = ["openssl", "verify", "-x509_strict", "-CAfile", str(authority / "organization-ca.crt"), *options]
        return subprocess.run([*argv, str(folder / "cas-01-peer.crt")], capture_output=True).returncode

    for purpose in ("sslserver", "sslclient"):
        assert verify(folder, "-purpose", purpose, "-verify_hostname", "cas-01.contoso.com") == 0
        assert verify(folder, "-purpose", purpose, "-verify_ip", "127.0.1.9") == 0
        assert verify(folder, "-purpose", purpose, "-verify_hostname", "cas-02.contoso.com") != 0
        assert verify(tmp_path / "other", "-purpose", purpose) != 0


def test_only_front_ends_hubs_and_edges_of_the_organization_get_one(folder: Path, file: Path) -> None:
    """A mailbox server or a stranger with one could speak for any user."""
    assert "is no front end, hub or edge" in ca("issue", "MBX-01", "-c", file, "--ca", folder, status=1).output
    refused = ca("issue", "CAS-09", "-c", file, "--ca", folder, status=1).output
    assert "those are: CAS-01, CAS-02, HUB-01" in refused
    assert sorted(path.name for path in folder.iterdir()) == ["organization-ca.crt", "organization-ca.key"]


def test_a_hub_gets_one_that_the_check_is_content_with(folder: Path, file: Path, tmp_path: Path) -> None:
    """It is not told of the endpoint for requests, which hubs do not have."""
    assert "peer = {}" not in ca("issue", "HUB-01", "-c", file, "--ca", folder).output
    hub = tmp_path / "hub.toml"
    front_end = FRONT_END.replace("CAS-01", "HUB-01").replace("cas-01", "hub-01")
    hub.write_text(front_end + '[front_end.transport]\nspool = "spool"\n' + ORGANIZATION)
    assert [str(f) for f in load(str(hub)).findings if "peer" in str(f)] == []


def test_nothing_is_overwritten_unless_it_is_forced(folder: Path, file: Path) -> None:
    """`--force` makes a new key too."""
    ca("issue", "CAS-01", "-c", file, "--ca", folder)
    before = (folder / "cas-01-peer.key").read_bytes()
    assert "gatepost ca renew CAS-01" in ca("issue", "CAS-01", "-c", file, "--ca", folder, status=1).output
    assert (folder / "cas-01-peer.key").read_bytes() == before
    ca("issue", "CAS-01", "-c", file, "--ca", folder, "--force")
    assert (folder / "cas-01-peer.key").read_bytes() != before


def test_a_renewal_keeps_the_key_and_takes_the_names_of_today(folder: Path, file: Path) -> None:
    """One file changes, so that key and certificate always fit; the key has left the CA's machine and stays away."""
    ca("issue", "CAS-01", "-c", file, "--ca", folder)
    (folder / "cas-01-peer.key").rename(folder.parent / "key")
    first = certificate(folder / "cas-01-peer.crt")
    file.write_text(file.read_text().replace("cas-01.inside.contoso.com", "front.contoso.com"))
    output = ca("renew", "CAS-01", "-c", file, "--ca", folder, "--days", 30).output
    second = certificate(folder / "cas-01-peer.crt")
    names = second.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "front.contoso.com" in names.get_values_for_type(x509.DNSName)
    assert not (folder / "cas-01-peer.key").exists()
    assert second.public_key() == first.public_key()
    assert second.serial_number != first.serial_number
    assert "good for 30 days" in output
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cas-01-peer.crt", folder.parent / "key")


def test_only_this_cas_certificate_of_this_server_is_renewed(folder: Path, file: Path, tmp_path: Path) -> None:
    """Otherwise a stranger's key would become a front end's."""
    assert "gatepost ca issue CAS-02" in ca("renew", "CAS-02", "-c", file, "--ca", folder, status=1).output
    ca("issue", "CAS-01", "-c", file, "--ca", folder)
    shutil.copy(folder / "cas-01-peer.crt", folder / "cas-02-peer.crt")
    assert "is not that of CAS-02" in ca("renew", "CAS-02", "-c", file, "--ca", folder, status=1).output
    ca("init", tmp_path / "other")
    ca("issue", "CAS-02", "-c", file, "--ca", tmp_path / "other")
    shutil.copy(tmp_path / "other/cas-02-peer.crt", folder)
    assert "is not of this CA" in ca("renew", "CAS-02", "-c", file, "--ca", folder, status=1).output
    (folder / "cas-02-peer.crt").write_text("nothing")
    assert "PEM form" in ca("renew", "CAS-02", "-c", file, "--ca", folder, status=1).output


def test_out_puts_the_files_elsewhere(folder: Path, file: Path, tmp_path: Path) -> None:
    """And the folder is made."""
    ca("issue", "CAS-02", "-c", file, "--ca", folder, "--out", tmp_path / "for" / "cas-02")
    assert sorted(p.name for p in (tmp_path / "for" / "cas-02").iterdir()) == ["cas-02-peer.crt", "cas-02-peer.key"]


def test_a_ca_for_a_domain_signs_for_no_other(file: Path, tmp_path: Path) -> None:
    """Whoever gets hold of its key still cannot pose as a host outside, which TLS libraries see to as well."""
    ca("init", tmp_path / "ca", "--domain", "inside.contoso.com")
    refused = ca("issue", "CAS-02", "-c", file, "--ca", tmp_path / "ca", status=1).output
    assert "only for hosts below inside.contoso.com, not for cas-02.contoso.com" in refused
    ca("init", tmp_path / "wide", "--domain", "contoso.com")
    ca("issue", "CAS-02", "-c", file, "--ca", tmp_path / "wide")
    constraints = certificate(tmp_path / "wide/organization-ca.crt").extensions.get_extension_for_class(
        x509.NameConstraints
    )
    assert constraints.critical


def test_show_says_who_until_when_and_the_fingerprint(folder: Path, file: Path) -> None:
    """The fingerprint is the one that OpenSSL prints, without colons."""
    ca("issue", "CAS-01", "-c", file, "--ca", folder, "--days", "5")
    output = ca("show", folder / "cas-01-peer.crt", folder / "organization-ca.crt").output
    der = ssl.PEM_cert_to_DER_cert((folder / "cas-01-peer.crt").read_text())
    assert f"sha256 {hashlib.sha256(der).hexdigest()}" in output
    assert "certificate CAS-01, signed by contoso front ends" in output
    assert "CA contoso front ends" in output
    assert "gatepost:server:CAS-01" in output
    assert "(expires on " in output


def test_show_names_what_is_no_certificate(folder: Path) -> None:
    """And still shows the others."""
    result = ca("show", folder / "organization-ca.key", folder / "organization-ca.crt", status=1)
    assert "organization-ca.key: holds no certificate in PEM form" in result.output
    assert "CA contoso front ends" in result.output


def test_show_goes_on_after_a_file_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    """Missing, or a folder: said in words, and the others are shown."""
    result = ca("show", tmp_path / "none.crt", folder, folder / "organization-ca.crt", status=1)
    assert f"{tmp_path / 'none.crt'} cannot be read: No such file or directory" in result.output
    assert f"{folder} cannot be read: Is a directory" in result.output
    assert "Errno" not in result.output
    assert "CA contoso front ends" in result.output


def test_a_new_pair_replaces_the_old_one_whole_or_not_at_all(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full after the first file: a new key with the old certificate would be of no use."""
    ca("issue", "CAS-01", "-c", file, "--ca", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    room = iter([None])

    def full(descriptor: int) -> None:
        if next(room, descriptor) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused = ca("issue", "CAS-01", "-c", file, "--ca", folder, "--force", status=1).output
    assert f"{folder / 'cas-01-peer.key'} cannot be written: No space left on device" in refused
    assert "nothing was changed" in refused
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_broken_ca_is_named(folder: Path, file: Path, tmp_path: Path) -> None:
    """A key of another CA, no CA at all, a certificate that is none of a CA."""
    ca("init", tmp_path / "other")
    assert "there is no CA in" in ca("issue", "CAS-01", "-c", file, "--ca", tmp_path / "none", status=1).output
    shutil.copy(tmp_path / "other/organization-ca.key", folder)
    assert "does not belong" in ca("issue", "CAS-01", "-c", file, "--ca", folder, status=1).output
    (folder / "organization-ca.key").write_text("nothing")
    assert "PEM form" in ca("issue", "CAS-01", "-c", file, "--ca", folder, status=1).output


def test_no_certificate_outlives_its_ca(folder: Path, file: Path) -> None:
    """It would stop working on a day that nobody expects."""
    arguments = ("issue", "CAS-01", "-c", file, "--ca", folder, "--days")
    assert "the CA itself ends on" in ca(*arguments, 3650, status=1).output
    ca(*arguments, 3649)


def test_the_command_is_listed() -> None:
    """`gatepost --help` names it."""
    assert "ca" in COMMANDS
