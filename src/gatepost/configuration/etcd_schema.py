"""The shape of `[front_end.etcd]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from pydantic import Field

from gatepost.configuration.tables import Table


class EtcdTable(Table):
    """The registry in an etcd cluster (3.4 or later), for front ends on several machines. All of them, and all
    managers, have the same endpoints and prefix. Without this table the registry is the file named by `registry`, for
    one machine; with it that file is not used, and only its folder is, for what belongs to this machine alone."""

    endpoints: list[str] = Field(examples=['["https://etcd-1.contoso.com:2379", "https://etcd-2.contoso.com:2379"]'])
    """URLs of the cluster's members. They are tried in turn, so name all of them. `http` only on this machine."""
    prefix: str = Field(default="", examples=['"/mail/contoso"'])
    """What the registry's keys begin with. Default: `/gatepost/` and the organization's name."""
    user: str = Field(default="", examples=['"gatepost"'])
    """The account at etcd, which needs to read and write the keys with that prefix. Empty: no sign-in."""
    password_file: str = Field(default="", examples=['"secrets/etcd"'])
    """File with the account's password; a line end at its end is dropped."""
    ca: str = Field(default="", examples=['"pki/etcd-ca.crt"'])
    """File with the certificates that sign the members' certificates. Empty: the system's."""
    certificate: str = Field(default="", examples=['"pki/cas-01-etcd.crt"'])
    """File with the certificate that this front end shows the members, PEM; `{server}` in it stands for the server's
    name in lower case. Empty: none. Together with `user` it must have no common name: etcd's gateway refuses that."""
    private_key: str = Field(default="", examples=['"pki/cas-01-etcd.key"'])
    """File with its private key, PEM; `{server}` as above. Empty: it is in the certificate's file."""
