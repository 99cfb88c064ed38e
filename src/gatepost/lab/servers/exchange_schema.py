"""What Exchange adds to Active Directory's schema, as far as Gatepost reads it: our own LDIF, for a Samba in tests.

Names and syntaxes are those of the published schema references; numbers where these are not known are our own.
"""

from __future__ import annotations

from collections.abc import Iterable

_TEXT, _NUMBER, _LARGE, _OCTETS, _NAME = (
    ("2.5.5.12", 64), ("2.5.5.9", 2), ("2.5.5.16", 65), ("2.5.5.10", 4), ("2.5.5.1", 127),
)  # fmt: skip
"""Pairs of `attributeSyntax` and `oMSyntax`: text, integer, large integer, octets, distinguished name."""
_DN_CLASS = "KwwCh3McAIVK"
"""`oMObjectClass` of distinguished names, in base64."""
_READABLE = "D:(A;;RPWPCRCCDCLCLORCWOWDSDDTSW;;;DA)(A;;RPWPCRCCDCLCLORCWOWDSDDTSW;;;SY)(A;;RPLCLORC;;;AU)"
"""Rights of new entries (SDDL): administrators may do everything, whoever has signed in may read."""
_EXCHANGE = "1.2.840.113556.1.4.7000.102"
_OWN = "1.3.6.1.4.1.55555"

_ATTRIBUTES = (
    ("homeMDB", "1.2.840.113556.1.2.244", _NAME),
    ("protocolSettings", "1.2.840.113556.1.2.528", _TEXT),
    ("msExchHomeServerName", f"{_EXCHANGE}.50047", _TEXT),
    ("msExchMailboxGuid", f"{_EXCHANGE}.11058", _OCTETS),
    ("msExchVersion", f"{_EXCHANGE}.50702", _LARGE),
    ("msExchServerSite", f"{_EXCHANGE}.50709", _NAME),
    ("msExchCurrentServerRoles", f"{_EXCHANGE}.50648", _NUMBER),
    ("msExchInternalHostName", f"{_OWN}.3.1", _TEXT),
    ("msExchExternalHostName", f"{_OWN}.3.2", _TEXT),
    ("msExchInternalNLBBypassHostName", f"{_OWN}.3.3", _TEXT),
    ("msExchInternalAuthenticationMethods", f"{_OWN}.3.4", _NUMBER),
    ("msExchMDBAvailabilityGroupLink", f"{_OWN}.3.5", _NAME),
    ("msExchMasterServerOrAvailabilityGroup", f"{_OWN}.3.6", _NAME),
    ("msExchOwningServer", f"{_OWN}.3.7", _NAME),
    ("msExchHostServerLink", f"{_OWN}.3.8", _NAME),
    ("msExchActivationPreference", f"{_OWN}.3.9", _NUMBER),
    ("msExchCost", f"{_OWN}.3.10", _NUMBER),
    ("msExchTransportSiteFlags", f"{_OWN}.3.11", _NUMBER),
)
_SEVERAL = {"protocolSettings"}
"""Attributes with several values."""
_AUXILIARY = {
    "User": ("gpMailUser", "homeMDB msExchHomeServerName msExchMailboxGuid msExchVersion protocolSettings"),
    "Site": ("gpExchangeSite", "msExchTransportSiteFlags"),
    "Site-Link": ("gpExchangeSiteLink", "msExchCost"),
}
"""Of classes that are there already: what they get, by a class of ours."""
_DIRECTORY = (
    "msExchInternalHostName msExchExternalHostName msExchInternalNLBBypassHostName msExchInternalAuthenticationMethods"
)
_SERVER = (
    "networkAddress msExchServerSite msExchCurrentServerRoles serialNumber versionNumber msExchMDBAvailabilityGroupLink"
)
_ANY = ("top", "")
_CLASSES: dict[str, tuple[str, str]] = {
    "msExchOrganizationContainer": _ANY,
    "msExchExchangeServer": ("top", _SERVER),
    "msExchVirtualDirectory": ("top", _DIRECTORY),
    **{
        f"msExch{kind}VirtualDirectory": ("msExchVirtualDirectory", "")
        for kind in ("Owa", "Ecp", "WebServices", "Mobile", "OAB", "AutoDiscover", "PowerShell")
    },
    "msExchPrivateMDB": ("top", "msExchOwningServer msExchMasterServerOrAvailabilityGroup"),
    "msExchMDBCopy": ("top", "msExchHostServerLink msExchActivationPreference"),
    "msExchMDBAvailabilityGroup": _ANY,
}
"""Structural classes: what each is derived from, and its attributes."""


def schema_ldifs(domain: str) -> tuple[str, ...]:
    """LDIFs to load one after the other; between two of them the schema must be read anew.

    `domain` is the forest's root, `DC=…`.
    """
    schema = f"CN=Schema,CN=Configuration,{domain}"
    attributes = "".join(_attribute(schema, *each) for each in _ATTRIBUTES)
    derived = [_class(schema, name, number) for number, name in enumerate(_CLASSES) if _CLASSES[name][0] == "top"]
    later = [_class(schema, name, number) for number, name in enumerate(_CLASSES) if _CLASSES[name][0] != "top"]
    auxiliary = "".join(
        _entry(schema, name, "classSchema", {"governsID": f"{_OWN}.5.{number}", "objectClassCategory": "3"}, may)
        for number, (name, may) in enumerate(_AUXILIARY.values())
    )
    extended = "".join(
        f"dn: CN={cn},{schema}\nchangetype: modify\nadd: auxiliaryClass\nauxiliaryClass: {name}\n\n"
        for cn, (name, _) in _AUXILIARY.items()
    )
    inside = "".join(
        f"dn: CN={name},{schema}\nchangetype: modify\nadd: possSuperiors\npossSuperiors: {parent}\n\n"
        for name, parent in (
            ("msExchMDBCopy", "msExchPrivateMDB"),
            ("msExchPrivateMDB", "msExchExchangeServer"),
            ("Container", "msExchExchangeServer"),
            ("Container", "msExchOrganizationContainer"),
        )
    )
    return attributes, "".join(derived) + auxiliary, "".join(later) + extended + inside


def _attribute(schema: str, name: str, oid: str, syntax: tuple[str, int]) -> str:
    more = {
        "attributeID": oid,
        "attributeSyntax": syntax[0],
        "oMSyntax": str(syntax[1]),
        "isSingleValued": "FALSE" if name in _SEVERAL else "TRUE",
        "searchFlags": "1",
        "isMemberOfPartialAttributeSet": "TRUE",
    }
    ending = f"oMObjectClass:: {_DN_CLASS}\n" if syntax is _NAME else ""
    return _entry(schema, name, "attributeSchema", more, ending=ending)


def _class(schema: str, name: str, number: int) -> str:
    parent, may = _CLASSES[name]
    more = {
        "governsID": f"{_OWN}.4.{number}",
        "objectClassCategory": "1",
        "subClassOf": parent,
        "rDNAttID": "cn",
        "defaultSecurityDescriptor": _READABLE,
        "possSuperiors": "container",
    }
    return _entry(schema, name, "classSchema", more, may)


def _entry(schema: str, name: str, kind: str, values: dict[str, str], may: str = "", ending: str = "") -> str:
    lines: Iterable[str] = (
        f"dn: CN={name},{schema}",
        f"objectClass: {kind}",
        f"cn: {name}",
        f"lDAPDisplayName: {name}",
        *(f"{key}: {value}" for key, value in values.items()),
        *([] if kind == "attributeSchema" or "subClassOf" in values else ["subClassOf: top"]),
        *(f"mayContain: {attribute}" for attribute in may.split()),
    )
    return "\n".join(lines) + "\n" + ending + "\n"
