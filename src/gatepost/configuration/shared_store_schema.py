"""The shape of `[front_end.shared_store]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BeforeValidator, Field

from gatepost.configuration.settings import SharedStoreSettings
from gatepost.configuration.tables import Table, default_of
from gatepost.configuration.words import by_value, reader


class Engine(Enum):
    """What the store is."""

    ETCD = "etcd"
    REDIS = "redis"


EngineWord = Annotated[Engine, BeforeValidator(reader(by_value(Engine)))]


class SharedStoreTable(Table):
    """Penalties for wrong passwords, session counts, devices and sign-outs shared by the front ends of several
    machines. All of them have the same engine, prefix and secret. Without this table those of one machine share them in
    the file `shared_state`; with it that file is for the time in which the store cannot be reached."""

    engine: EngineWord = Field(examples=['"redis"'])
    """`redis` (6.2 or later, or Valkey), or `etcd`: the cluster of `[front_end.etcd]`, with its account."""
    secret_file: str = Field(examples=['"secrets/shared-store"'])
    """File with at least 16 random bytes, the same at all front ends. Names, addresses and passwords are in the store
    only as digests under this secret."""
    url: str = Field(default="", examples=['"rediss://redis.contoso.com:6379/0"'])
    """Of Redis: `rediss` with TLS; `redis` only on this machine. The path is the database's number."""
    user: str = Field(default="", examples=['"gatepost"'])
    """The account at Redis, which needs `EVAL`, `EVALSHA`, `TIME`, `GET`, `SET`, `DEL`, `STRLEN` and the keys with the
    prefix. Empty: the default account."""
    password_file: str = Field(default="", examples=['"secrets/redis"'])
    """File with the account's password; a line end at its end is dropped. Empty: none."""
    ca: str = Field(default="", examples=['"pki/redis-ca.crt"'])
    """File with the certificates that sign the server's certificate. Empty: the system's."""
    certificate: str = Field(default="", examples=['"pki/{server}-redis.crt"'])
    """File with the certificate that this front end shows, PEM; `{server}` stands for the server's name in lower case.
    Empty: none."""
    private_key: str = Field(default="", examples=['"pki/{server}-redis.key"'])
    """File with its private key, PEM; `{server}` as above. Empty: it is in the certificate's file."""
    prefix: str = Field(default="", examples=['"/mail/contoso/shared"'])
    """What keys begin with. Default: `/gatepost/` and the organization's name, or the prefix of `[front_end.etcd]`, and
    `/shared`."""
    answer_seconds: float = Field(
        default=default_of(SharedStoreSettings, "answer_seconds"), ge=0.005, le=1.0, examples=["0.1"]
    )
    """A sign-in waits so long for the store; then the front end counts by itself."""
