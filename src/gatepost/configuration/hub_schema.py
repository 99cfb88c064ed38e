"""The shape of `[front_end.transport]`. The string under each key is its entry in `docs/configuration.md`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gatepost.configuration.hub_settings import ContentHookSettings, HubSettings
from gatepost.configuration.tables import MAX_COUNT, MAX_SECONDS, Table, default_of


class DkimTable(Table):
    """Signs mail whose sender is of this domain, for example `[front_end.transport.dkim."contoso.com"]`."""

    selector: str = Field(examples=['"2027a"'])
    """The public key is looked for at `SELECTOR._domainkey.DOMAIN`."""
    private_key: str = Field(examples=['"secrets/dkim-2027a.pem"'])
    """File with the private key, PEM: RSA of 2048 bits and more, or Ed25519."""


class ContentHookTable(Table):
    """Asks about each message from outside and from users before it is taken: `command` or `url`."""

    command: list[str] = Field(default=[], examples=['["/usr/local/bin/check-mail"]'])
    """A program, by its whole path, that gets the message on its standard input. Status 0 takes it, 75 puts it off, any
    other refuses it; its first line of output is what the client is told."""
    url: str = Field(default="", examples=['"http://127.0.0.1:11333/checkv2"'])
    """Where rspamd, or what speaks its protocol, is asked."""
    seconds: float = Field(default=default_of(ContentHookSettings, "seconds"), gt=0, le=MAX_SECONDS, examples=["10.0"])
    """Longest an answer may take."""
    max_bytes: int = Field(
        default=default_of(ContentHookSettings, "max_bytes"), ge=1, le=MAX_COUNT, examples=["10000000"]
    )
    """Larger messages are taken without asking."""
    unavailable: Literal["defer", "accept"] = Field(default="defer", examples=['"accept"'])
    """What becomes of a message when nobody answers: it is put off (451), or taken."""


class HubTable(Table):
    """The transport of a hub or edge transport server: with this table mail is received, queued and sent here."""

    spool: str = Field(examples=['"state/spool"'])
    """Folder of the messages that were taken and are not yet delivered. Its disk decides how fast mail is taken."""
    resolvers: list[str] = Field(default=[], examples=['["127.0.0.1:53"]'])
    """DNS servers that are asked for MX. Empty: those of the system."""
    connectivity_log: str = Field(default="", examples=['"/var/log/gatepost/connectivity"'])
    """Folder of the connectivity log, where it is enabled for this server. Default: `connectivity` in the spool."""
    ending_seconds: float = Field(
        default=default_of(HubSettings, "ending_seconds"), ge=0, le=MAX_SECONDS, examples=["30.0"]
    )
    """How long messages that are being received or sent may go on when the service stops."""
    dkim: dict[str, DkimTable] = {}
    content_hook: ContentHookTable | None = None
