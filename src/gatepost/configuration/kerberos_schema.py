"""The shape of `[front_end.kerberos]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from pydantic import Field

from gatepost.configuration.tables import Table


class KerberosTable(Table):
    """Sign-in by Kerberos tickets: HTTP Negotiate, and SASL GSSAPI for IMAP, POP3 and submission. Without this table
    it is not offered."""

    keytab: str = Field(examples=['"pki/mail.keytab"'])
    """File with the keys of the service principals. Workers read it at each sign-in, so their account must be able to;
    new keys count at once."""
    service_principals: list[str] = Field(default=[], examples=['["HTTP/mail.contoso.com", "imap/mail.contoso.com"]'])
    """What clients ask tickets for, without realm: `HTTP`, `imap`, `pop` and `smtp`, each with the host name that
    clients use. A protocol without one does not offer Kerberos. Empty: those in the keytab."""
    realms: dict[str, str] = Field(examples=['{ "AD.CONTOSO.COM" = "contoso.com" }'])
    """Realms whose users may sign in, as Kerberos writes them, each with the domain of its users' names here:
    `alice@AD.CONTOSO.COM` is then `alice@contoso.com`. Tickets of other realms are refused."""
    netbios_domains: dict[str, str] = Field(default={}, examples=['{ "CONTOSO" = "contoso.com" }'])
    """Domains as in `CONTOSO\\\\alice`, for clients that write their user so beside the ticket."""
    delegation_principal: str = Field(default="", examples=['"svc-mail@AD.CONTOSO.COM"'])
    """The account that asks for tickets of users for servers whose sign-in is `kerberos` (constrained delegation); its
    key is in `keytab`. Empty: no such tickets."""
