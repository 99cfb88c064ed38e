"""`[front_end.etcd]`: there or not, its defaults, its files, and every fault that it can have, with its line."""

from __future__ import annotations

import pytest
from configuration_samples import FRONT_END, NOW, ORGANIZATION, load_text

from gatepost.configuration.settings import EtcdSettings
from gatepost.peers.ca import make_authority

PAIR = make_authority("etcd", NOW)
FILES = {
    "etc/pki/etcd-ca.crt": PAIR.certificate,
    "etc/pki/cas-01.crt": PAIR.certificate,
    "etc/pki/cas-01.key": PAIR.private_key,
    "etc/pki/both.pem": PAIR.certificate + PAIR.private_key,
    "etc/secrets/etcd": b"s3cret\n",
}
ONE = '[front_end.etcd]\nendpoints = ["https://etcd-1:2379"]\n'


def etcd(text: str) -> tuple[EtcdSettings | None, list[str]]:
    loaded = load_text(FRONT_END + text + "\n" + ORGANIZATION, FILES)
    ours = [str(f) for f in loaded.findings if f.finding.path[:2] == ("front_end", "etcd")]
    return (loaded.configuration.front_end.etcd if loaded.configuration else None), ours


def test_without_the_table_the_registry_is_a_file() -> None:
    assert etcd("") == (None, [])


def test_the_organizations_name_is_in_the_prefix() -> None:
    assert etcd(ONE) == (EtcdSettings(("https://etcd-1:2379",), "/gatepost/contoso"), [])


def test_everything_can_be_written() -> None:
    found, findings = etcd(
        '[front_end.etcd]\nendpoints = ["https://etcd-1:2379/", "http://127.0.0.1:2379"]\nprefix = "/mail/x/"\n'
        'user = "gatepost"\npassword_file = "secrets/etcd"\nca = "pki/etcd-ca.crt"\n'
        'certificate = "pki/{server}.crt"\nprivate_key = "pki/{server}.key"\n'
    )
    assert ["has a common name" in finding for finding in findings] == [True]
    assert found == EtcdSettings(
        ("https://etcd-1:2379", "http://127.0.0.1:2379"),
        "/mail/x",
        "gatepost",
        "s3cret",
        PAIR.certificate,
        PAIR.certificate,
        PAIR.private_key,
    )
    assert "s3cret" not in repr(found)
    assert "PRIVATE" not in repr(found)


def test_a_key_may_be_in_the_certificates_file() -> None:
    found, findings = etcd(ONE + 'certificate = "pki/both.pem"\n')
    assert findings == []
    assert found is not None
    assert found.private_key == found.certificate == FILES["etc/pki/both.pem"]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[front_end.etcd]\nendpoints = []\n", "endpoints", "no endpoint of etcd"),
        ('[front_end.etcd]\nendpoints = ["etcd-1:2379"]\n', "endpoints", "does not begin with https://"),
        ('[front_end.etcd]\nendpoints = ["https://a:2379", "https://a:x"]\n', "endpoints", "port that is not a number"),
        ('[front_end.etcd]\nendpoints = ["https://a:2379/v3"]\n', "endpoints", "has a path"),
        ('[front_end.etcd]\nendpoints = ["http://etcd-1:2379"]\n', "endpoints", "in clear text and on another machine"),
        ('[front_end.etcd]\nendpoints = ["https://a:2379", "https://a:2379/"]\n', "endpoints", "there twice"),
        (ONE + 'prefix = "gatepost"\n', "prefix", "does not begin with a slash and a name"),
        (ONE + 'prefix = "/"\n', "prefix", "does not begin with a slash and a name"),
        (ONE + 'prefix = "/a b"\n', "prefix", "has spaces"),
        (ONE + 'user = "gatepost"\n', "user", "a user at etcd and no password"),
        (ONE + 'password_file = "secrets/etcd"\n', "password_file", "no user"),
        (ONE + 'user = "x"\npassword_file = "secrets/none"\n', "password_file", "the password for etcd"),
        (
            ONE + 'certificate = "pki/both.pem"\nuser = "x"\npassword_file = "secrets/etcd"\n',
            "certificate",
            "common name",
        ),
        (ONE + 'private_key = "pki/cas-01.key"\n', "private_key", "no certificate"),
        (ONE + 'ca = "secrets/etcd"\n', "ca", "holds no certificate"),
        (ONE + 'certificate = "pki/cas-01.crt"\n', "certificate", "holds no private key"),
        (ONE + 'certificate = "pki/none.crt"\nprivate_key = "pki/cas-01.key"\n', "certificate", "cannot be read"),
        ('[front_end.etcd]\nendpoints = ["http://[::1]:2379"]\nca = "pki/etcd-ca.crt"\n', "ca", "has no use"),
        (ONE + "nodes = 3\n", "nodes", "unknown key"),
    ],
)
def test_a_fault_is_found_at_its_line(text: str, key: str, message: str) -> None:
    _, findings = etcd(text)
    assert len(findings) == 1
    assert message in findings[0]
    before = (FRONT_END + text).splitlines()
    line = next(number for number, row in reversed(list(enumerate(before, 1))) if row.startswith(f"{key} ="))
    assert f":{line}:" in findings[0]
