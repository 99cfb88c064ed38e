"""`[front_end.shared_store]`: there or not, its defaults, its files, and every fault that it can have."""

from __future__ import annotations

import pytest
from configuration_samples import FRONT_END, NOW, ORGANIZATION, load_text

from gatepost.configuration import shared_store
from gatepost.configuration.settings import EtcdSettings, SharedStoreSettings
from gatepost.peers.ca import make_authority

PAIR = make_authority("redis", NOW)
SECRET = b"0123456789abcdef0123"
FILES = {
    "etc/pki/ca.crt": PAIR.certificate,
    "etc/pki/cas-01.crt": PAIR.certificate,
    "etc/pki/cas-01.key": PAIR.private_key,
    "etc/secrets/redis": b"s3cret\n",
    "etc/secrets/store": SECRET + b"\n",
    "etc/secrets/short": b"short\n",
}
ETCD = '[front_end.etcd]\nendpoints = ["https://etcd-1:2379"]\n'
TABLE = '[front_end.shared_store]\nsecret_file = "secrets/store"\n'
REDIS = TABLE + 'engine = "redis"\nurl = "rediss://redis-1:6379/0"\n'


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed here."""
    monkeypatch.setattr(shared_store, "find_spec", lambda _: True)


def store(text: str) -> tuple[SharedStoreSettings | None, list[str]]:
    loaded = load_text(FRONT_END + text + "\n" + ORGANIZATION, FILES)
    ours = [str(f) for f in loaded.findings if f.finding.path[:2] == ("front_end", "shared_store")]
    return (loaded.configuration.front_end.shared_store if loaded.configuration else None), ours


def test_without_the_table_front_ends_of_one_machine_share() -> None:
    assert store("") == (None, [])


def test_the_organizations_name_is_in_the_prefix() -> None:
    wanted = SharedStoreSettings(SECRET, "/gatepost/contoso/shared", url="rediss://redis-1:6379/0")
    assert store(REDIS) == (wanted, [])


def test_everything_can_be_written() -> None:
    found, findings = store(
        REDIS
        + 'user = "gatepost"\npassword_file = "secrets/redis"\nca = "pki/ca.crt"\ncertificate = "pki/{server}.crt"\n'
        'private_key = "pki/{server}.key"\nprefix = "/mail/x/"\nanswer_seconds = 0.1\n'
    )
    assert findings == []
    assert found == SharedStoreSettings(
        SECRET,
        "/mail/x",
        0.1,
        None,
        "rediss://redis-1:6379/0",
        "gatepost",
        "s3cret",
        PAIR.certificate,
        PAIR.certificate,
        PAIR.private_key,
    )
    for secret in ("s3cret", "0123456789", "PRIVATE"):
        assert secret not in repr(found)


def test_the_client_of_redis_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store, "find_spec", lambda _: None)
    _, findings = store(REDIS)
    assert len(findings) == 1
    assert "whose client redis is not installed" in findings[0]


def test_etcd_is_the_cluster_of_the_registry() -> None:
    found, findings = store(ETCD + TABLE + 'engine = "etcd"\n')
    assert findings == []
    cluster = EtcdSettings(("https://etcd-1:2379",), "/gatepost/contoso")
    assert found == SharedStoreSettings(SECRET, "/gatepost/contoso/shared", etcd=cluster)


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (TABLE + 'engine = "memcached"\n', "engine", "has the unknown word"),
        (TABLE + 'engine = "redis"\n', "url", "no server of Redis is named"),
        (REDIS.replace("rediss:", "https:"), "url", "does not begin with rediss://"),
        (REDIS.replace("rediss:", "redis:"), "url", "in clear text and on another machine"),
        (REDIS.replace("redis-1:6379", "redis-1:x"), "url", "is none"),
        (REDIS.replace("//redis-1:6379", "//"), "url", "names no host"),
        (REDIS.replace("6379/0", "6379/mail"), "url", "more than a database's number"),
        (REDIS.replace("//redis-1", "//me:hidden@redis-1"), "url", "holds an account"),
        (REDIS.replace("secrets/store", "secrets/short"), "secret_file", "is shorter than 16 bytes"),
        (REDIS.replace("secrets/store", "secrets/none"), "secret_file", "cannot be read"),
        (REDIS + 'user = "gatepost"\n', "user", "a user at Redis and no password"),
        (REDIS + 'private_key = "pki/cas-01.key"\n', "private_key", "a private key for Redis and no certificate"),
        (REDIS + 'prefix = "mail"\n', "prefix", "is not a slash and a name"),
        (REDIS + 'ca = "pki/none.crt"\n', "ca", "cannot be read"),
        (TABLE + 'engine = "etcd"\n', "engine", "no cluster is named"),
        (ETCD + TABLE + 'engine = "etcd"\nurl = "rediss://a"\n', "url", "has no use: etcd's are in"),
        (
            REDIS.replace("rediss://redis-1", "redis://127.0.0.1") + 'ca = "pki/ca.crt"\n',
            "ca",
            "Redis is asked in clear text",
        ),
    ],
)
def test_every_fault_has_its_line(text: str, key: str, message: str) -> None:
    _, findings = store(text)
    assert len(findings) == 1, findings
    assert message in findings[0]
    assert "hidden" not in findings[0]
    lines = [number for number, line in enumerate((FRONT_END + text).splitlines(), 1) if line.startswith(f"{key} =")]
    assert not lines or any(f":{line}:" in findings[0] for line in lines)
