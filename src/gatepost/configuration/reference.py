"""Writes `docs/configuration.md` from the schema, so that no default is printed that the code does not have.

python -m gatepost.configuration.reference docs/configuration.md
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gatepost.configuration import (
    client_certificates,
    database_schema,
    directory_schema,
    etcd_schema,
    hub_schema,
    kerberos_schema,
    manager_schema,
    policy_schema,
    schema,
    scram,
    settings,
    shared_store_schema,
    token_schema,
    transport_schema,
    transport_words,
)
from gatepost.configuration.build import STANDARD_SERVICES
from gatepost.organization import transport
from gatepost.organization.model import AuthenticationMethod, Network, Version

HEAD = """\
# Configuration

<!-- Written by `python -m gatepost.configuration.reference docs/configuration.md`; a test keeps it current. -->

Gatepost reads TOML. `gatepost check FILE` names every fault with its line and what to do about it, and ends with
status 0 when there are no errors (1 otherwise; with `--strict` also for warnings). `--json` prints it for programs.

- **One file or two.** `[front_end]` describes one front end. All other tables describe the organization; they stand in
  the same file, or in one of their own that all front ends share: `organization = "organization.toml"`. That may be
  another front end's whole file; its `[front_end]` is then passed over.
- **Paths** are relative to the file that names them.
- **Unknown keys are errors**, and so are values of another type: `"143"` is not a port.
- **Names are case-sensitive** where objects refer to each other, and two names must differ by more than case.
- **Clear text is never a default.** Where TLS is to be left out, `tls = "clear"` must be written.

`examples/two-dovecots.toml` is the smallest real use, `examples/contoso.toml` an organization with three sites.
"""

DIRECTORIES = """\
### Virtual directories that need not be written

A server with an `https` (or `http`) endpoint and no entry under `virtual_directories` has the standard set of its
version, with internal URLs `https://<fqdn>/<service>` (and the endpoint's port where that is not 443):

{sets}

This is for mailbox servers that are `modern` or `2003`, and for client access servers. A server that has any entry has
only what is written. An entry written by hand gets no internal URL by itself: it must be set, and `gatepost check`
says so. On a modern mailbox server that is an error, since nothing could reach the directory.
"""

CONNECTORS = """\
### Receive connectors that need not be written

A hub or edge that no entry of `receive_connectors` names has the standard ones, listening at its own endpoints (all
addresses of the machine where the endpoint's address is a name):

- hub, `smtp`: `Default NAME`, for servers of the organization and users who have signed in
- hub that is no front end, `submission` and `submissions`: `Client NAME`, for users who have signed in
- edge, `smtp`: `Default internal receive connector NAME`, for servers of the organization, partners, and everybody to
  recipients of the organization

Passwords are taken within TLS only. A server that any entry names has only what is written.
"""

TAIL = """\
## What the check warns of

A warning does not keep Gatepost from running. While there are faults in the shape of the file, only errors are shown.

- An external URL on a virtual directory of a site that is not Internet-facing: clients will fail to connect.
- A virtual directory that others must proxy to (2003, 2007, 2010) without Integrated authentication or an internal URL.
- An internal URL with a port or scheme that no endpoint of its server has.
- More than one client access server in an Internet-facing site, and not all in an array.
- An array with a member in another site.
- A site with mailbox servers and no client access server.
- A database with one copy. A modern mailbox server without endpoints.
- A certificate that has expired, will within 14 days, is not valid yet, or does not stand for the front end's names:
  the hosts of its external URLs and the names of its arrays, or else its `fqdn`.
- A private key or a password file that every account may read.
- `idle_seconds` under 30 minutes.
- Mail: a site with databases and no hub, or no links that lead there; a hub site without a hub; a hub without an `smtp`
  endpoint; a mailbox server with databases that hubs cannot deliver to; no send connector for `*`; a relayed domain
  without a connector, and an address space for an authoritative one.
- A hub that is alone in its site with shadow redundancy on: nobody can keep shadows of its mail. Shadows that would be
  taken over before the first heartbeat. No safety net in a site with mailboxes. An accepted domain and no edge, and
  no hub's receive connector that takes mail from strangers.
- A receive connector that is an open relay (`externally-secured` for everybody), lets passwords cross in clear, or lets
  in a group that cannot show who it is. A send connector whose password goes to a host that nobody verified.
- Front ends of one name with different certificates, when their files are checked together:
  `gatepost check cas-01.toml cas-02.toml`.
"""

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("[front_end]", schema.FrontEndTable),
    ("[front_end.limits]", schema.LimitsTable),
    ("[front_end.forms]", schema.FormsTable),
    ("[[front_end.forms.also_opens]]", schema.OtherKeyTable),
    ("[[front_end.token_issuers]]", token_schema.TokenIssuerTable),
    ("[front_end.kerberos]", kerberos_schema.KerberosTable),
    ("[front_end.etcd]", etcd_schema.EtcdTable),
    ("[front_end.shared_store]", shared_store_schema.SharedStoreTable),
    ("[[front_end.directories]]", directory_schema.DirectoryTable),
    ("[front_end.directories.ldap]", directory_schema.LdapTable),
    ("[front_end.directories.sql]", directory_schema.SqlTable),
    ("[front_end.directories.http]", directory_schema.HttpLookUpTable),
    ("[front_end.client_certificates]", client_certificates.ClientCertificatesTable),
    ("[front_end.scram]", scram.ScramTable),
    ("[front_end.sign_in_policy]", policy_schema.PolicyTable),
    ("[[front_end.sign_in_policy.rules]]", policy_schema.RuleTable),
    ("[[front_end.sign_in_policy.main_password_rules]]", policy_schema.MainPasswordRuleTable),
    ("[front_end.sign_in_policy.hook]", policy_schema.PolicyHookTable),
    ("[front_end.manager]", manager_schema.ManagerTable),
    ("[front_end.manager.canaries.PROTOCOL]", manager_schema.CanaryTable),
    ("[front_end.manager.hooks]", manager_schema.HooksTable),
    ("Keys of one hook", manager_schema.HookTable),
    ("[front_end.transport]", hub_schema.HubTable),
    ("[front_end.transport.dkim.DOMAIN]", hub_schema.DkimTable),
    ("[front_end.transport.content_hook]", hub_schema.ContentHookTable),
    ("[organization]", schema.OrganizationTable),
    ("[organization.transport]", transport_schema.TransportConfigTable),
    ("[sites.NAME]", schema.SiteTable),
    ("[site_links.NAME]", schema.SiteLinkTable),
    ("[servers.NAME]", schema.ServerTable),
    ("[servers.NAME.endpoints]", schema.EndpointsTable),
    ("Keys of one endpoint", schema.EndpointTable),
    ("[servers.NAME.sign_in]", schema.SignInTable),
    ("[servers.NAME.transport]", transport_schema.TransportTable),
    ("[databases.NAME]", database_schema.DatabaseTable),
    ("Keys of one copy", database_schema.CopyTable),
    ("[[virtual_directories]]", schema.VirtualDirectoryTable),
    ("[arrays.NAME]", schema.ArrayTable),
    ("[receive_connectors.NAME]", transport_schema.ReceiveConnectorTable),
    ("[send_connectors.NAME]", transport_schema.SendConnectorTable),
)

_LIMITS = "Bounds on what strangers and servers may take. Names that end in `_seconds` are times, the others counts."
_INTRODUCTIONS: dict[type[BaseModel], str] = {
    schema.LimitsTable: _LIMITS,
    transport_schema.TransportTable: transport_schema.SETTINGS_TEXT,
    transport_schema.TransportConfigTable: transport_schema.CONFIG_TEXT,
}
_PLAIN: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", datetime: "date and time",
    transport.Binding: "text", transport.AddressRange: "text", transport.AddressSpace: "text",
    transport.SmartHost: "text", transport_words.Size: "size", transport_words.Span: "time",
}  # fmt: skip


def reference() -> str:
    """The whole page."""
    texts = (
        _texts(schema)
        | _texts(database_schema)
        | _texts(manager_schema)
        | _texts(etcd_schema)
        | _texts(shared_store_schema)
        | _texts(directory_schema)
        | _texts(hub_schema)
        | _texts(kerberos_schema)
        | _texts(token_schema)
        | _texts(policy_schema)
        | _texts(scram)
        | _texts(client_certificates)
        | _texts(transport_schema)
    )
    texts |= {
        "LimitsTable": _texts(settings)["Limits"],
        "TransportTable": _texts(transport)["TransportSettings"],
        "TransportConfigTable": _texts(transport)["TransportConfig"],
    }
    parts = [HEAD]
    for title, table in SECTIONS:
        parts.append("\n".join(_section(title, table, texts)))
        if table is schema.VirtualDirectoryTable:
            parts.append(DIRECTORIES.format(sets="\n".join(_sets())))
        if table is transport_schema.ReceiveConnectorTable:
            parts.append(CONNECTORS)
    return "\n".join([*parts, TAIL])


def _section(title: str, table: type[BaseModel], texts: dict[str, dict[str, str]]) -> Iterator[str]:
    head = f"## `{title}`" if title.startswith("[") else f"### {title}"
    yield from (head, "", _INTRODUCTIONS.get(table) or inspect.cleandoc(table.__doc__ or ""), "")
    yield from ("| key | type | default | effect | example |", "|---|---|---|---|---|")
    for name, info in table.model_fields.items():
        if _is_table(info.annotation) and not texts[table.__name__].get(name):
            continue  # it has a section of its own
        effect = texts[table.__name__][name]
        example = f"`{name} = {info.examples[0]}`" if info.examples else ""
        row = (f"`{name}`", _type_of(info), _default(info), effect, example or f"`{name} = {{}}`")
        yield "| " + " | ".join(row) + " |"
    yield ""


def _is_table(annotation: Any) -> bool:  # noqa: ANN401 - annotations have no common type
    parts = (annotation, *get_args(annotation))
    return any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts)


def _type_of(info: FieldInfo) -> str:
    """The type of a key in plain words. Pydantic keeps what an `Annotated` said beside the bare type."""
    for kind in (transport_words.Size, transport_words.Span):
        if get_args(kind)[1] in info.metadata:
            return _PLAIN[kind]
    return _type(info.annotation)


def _type(annotation: Any) -> str:  # noqa: ANN401
    """The type in plain words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if annotation == Network:
        return "subnet"
    if origin is Annotated:
        return _type(inner[0])
    if origin is list:
        kind = _type(inner[0])
        return f"list of {kind}" if kind == "text" else f"list of {kind}s"
    if origin in {Union, UnionType}:
        return _type(inner[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "word"
    return "table"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return "–"
    if isinstance(value, list):
        return f"`[{', '.join(_toml(item) for item in value)}]`"
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:  # noqa: ANN401 - a default of any type
    """A default as it would be written in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Version):
        return f'"{value.word}"'
    if isinstance(value, Enum):
        return f'"{value.value}"'
    return f'"{value}"' if isinstance(value, str) else f"{value:.12g}" if isinstance(value, float) else str(value)


def _sets() -> Iterator[str]:
    for version, services in STANDARD_SERVICES.items():
        yield f"- `{version.word}`: {', '.join(f'`/{service}`' for service in services)}"
    methods = ", ".join(f'"{method.value}"' for method in (AuthenticationMethod.BASIC, AuthenticationMethod.INTEGRATED))
    yield f"- authentication of each: `[{methods}]`"


def _texts(module: Any) -> dict[str, dict[str, str]]:  # noqa: ANN401 - modules have no type of their own here
    """For each class of `module`, the strings under its fields."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: _field_texts(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _field_texts(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            words = ""
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                words = " ".join(str(text.value.value).split())
            # A source that only this project's developers know is no help to an operator.
            found[statement.target.id] = re.sub(r" \((?:field case \d+|SPEC \w+|nginx: [^)]*)\)", "", words)
    last = node.body[-1]
    if isinstance(last, ast.AnnAssign) and isinstance(last.target, ast.Name):
        found[last.target.id] = ""
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
