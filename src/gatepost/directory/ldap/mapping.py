"""Which attributes of an LDAP directory say what. Nothing here does I/O, nor needs the LDAP library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Login:
    """An attribute that a name is looked for in, and the form that the name has there.

    `form`: `{address}` is the whole canonical name, `{account}` its local part, asked for only where the name's domain
    is one of `Mapping.account_domains`. `{guid}` is a local part that is a GUID, as Exchange's clients name mailboxes;
    the attribute has its sixteen octets.
    """

    attribute: str
    form: str = "{address}"

    @property
    def is_guid(self) -> bool:
        """Whether the attribute has the octets of a GUID."""
        return self.form == "{guid}"


@dataclass(frozen=True, slots=True)
class Mapping:
    """One directory's attributes. Those that are empty are not looked at."""

    filter: str
    """What users have in common, in LDAP's notation (RFC 4515)."""
    logins: tuple[Login, ...]
    """In order: where two users have a name, the earlier attribute wins."""
    name: str
    """The attribute with the canonical login name; without a domain the first of `account_domains` is added."""
    account_domains: tuple[str, ...] = ()
    """Domains in which a name's local part is an account name, in lower case."""
    netbios_domain: str = ""
    """What stands before the backslash in `DOMAIN\\user`."""
    database: str = ""
    """The attribute with the name of the database, or a distinguished name that begins with it."""
    home_server: str = ""
    """The attribute with the name of the home server, where there is no database."""
    default_database: str = ""
    """For users with neither. Empty: they are no users."""
    login_at_server: str = ""
    send_as: str = ""
    """The attribute with the addresses and `@domain`s that the user may send as besides their own."""
    version: str = ""
    """The attribute that changes with the password."""
    disabled: str = ""
    disabled_values: tuple[str, ...] = ()
    """Values of `disabled`, in lower case."""
    disabled_bit: int = 0
    """A bit of `disabled` where that is a number."""
    protocols: str = ""
    """The attribute with the protocols that are allowed, by their words; without a value all are."""
    denied_protocols: str = ""
    """The attribute with those that are not."""
    groups: str = ""
    """The attribute with the user's groups: names, or distinguished names that begin with them."""
    protocol_settings: str = ""
    """Active Directory's attribute with values such as `IMAP4§0§…`."""
    numbers_changes: bool = False
    """Whether servers number their changes as domain controllers do (`ldap.changes`)."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """What is asked for."""
        wanted = (
            self.name, self.database, self.home_server, self.login_at_server, self.send_as, self.version, self.disabled,
            self.protocols, self.denied_protocols, self.groups, self.protocol_settings,
            *(login.attribute for login in self.logins),
        )  # fmt: skip
        return tuple(dict.fromkeys(attribute for attribute in wanted if attribute))

    def wanted(self, canonical_name: str) -> tuple[tuple[Login, str], ...]:
        """Each attribute to look in with the value to look for; empty when nobody can have this name."""
        local, _, domain = canonical_name.rpartition("@")
        if not local:
            local, domain = canonical_name, ""
        netbios, backslash, account = local.rpartition("\\")
        if backslash:
            # DOMAIN\user is an account, whatever domain was put behind it.
            if not account or netbios != self.netbios_domain.lower() or not netbios:
                return ()
            return tuple((login, login.form.format(account=account)) for login in self.logins if _is_account(login))
        is_account = domain in self.account_domains or not domain
        guid = local if domain and _GUID.fullmatch(local) else ""
        return tuple(
            (login, login.form.format(address=canonical_name, account=local, guid=guid))
            for login in self.logins
            if (guid if login.is_guid else is_account or not _is_account(login))
        )

    def names(self, login: Login, value: str) -> tuple[str, ...]:
        """The other way round: the names by which the user is found who has `value` in that attribute."""
        if login.is_guid:
            return ()  # nobody is known by it for longer than by the entry itself
        before, _, after = login.form.partition("{account}" if _is_account(login) else "{address}")
        lower = value.lower()
        if not (lower.startswith(before.lower()) and lower.endswith(after.lower())):
            return ()
        word = value[len(before) : len(value) - len(after)]
        if not _is_account(login):
            return (word,)
        return tuple(f"{word}@{domain}" for domain in self.account_domains) or (word,)


def _is_account(login: Login) -> bool:
    return "{account}" in login.form


def parse_login(text: str) -> Login:
    """`attribute` or `attribute=form`. Raises ValueError; the message is for the check."""
    attribute, equals, form = text.partition("=")
    if not is_attribute(attribute):
        raise ValueError("does not begin with an attribute's name")
    if not equals:
        return Login(attribute)
    try:
        tried = form.format(address="1", account="2", guid="3")
    except (KeyError, ValueError, IndexError):
        raise ValueError("may hold {address}, {account} or {guid} and no other braces") from None
    if tried == form:
        raise ValueError("holds none of {address}, {account} and {guid}")
    return Login(attribute, form)


def is_attribute(name: str) -> bool:
    """Whether this is an attribute's name or number (RFC 4512 section 1.4)."""
    return bool(name) and name.isascii() and all(c.isalnum() or c in "-.;" for c in name) and name[0].isalnum()


ACTIVE_DIRECTORY = Mapping(
    filter="(&(objectCategory=person)(objectClass=user))",
    logins=(
        Login("userPrincipalName"),
        Login("proxyAddresses", "smtp:{address}"),
        Login("mail"),
        Login("sAMAccountName", "{account}"),
        Login("msExchMailboxGuid", "{guid}"),
    ),
    name="userPrincipalName",
    database="homeMDB",
    home_server="msExchHomeServerName",
    version="pwdLastSet",
    disabled="userAccountControl",
    disabled_bit=2,
    protocol_settings="protocolSettings",
    groups="memberOf",
    numbers_changes=True,
)
OPENLDAP = Mapping(
    filter="(objectClass=inetOrgPerson)",
    logins=(Login("mail"), Login("uid", "{account}")),
    name="mail",
    version="entryCSN",
)
OPENLDAP_MAIL = replace(
    OPENLDAP,
    logins=(Login("mail"), Login("mailAlternateAddress"), Login("uid", "{account}")),
    disabled="accountStatus",
    disabled_values=("disabled", "deleted", "noaccess"),
)
PRESETS = {"active-directory": ACTIVE_DIRECTORY, "openldap": OPENLDAP, "openldap-mail": OPENLDAP_MAIL}
"""By the words of the configuration."""
