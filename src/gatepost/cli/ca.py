"""`gatepost ca`: the organization's own CA, by which front ends, hubs and edges know each other (SPEC C11, T1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click
from cryptography.x509 import Certificate

from gatepost.cli.options import SHOWN_FAULTS, UnknownName, config_option
from gatepost.configuration.certificates import certificates, validity_fault
from gatepost.configuration.findings import printable
from gatepost.configuration.load import load_organization
from gatepost.organization.model import Organization, Role, Server
from gatepost.peers.ca import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    Authority,
    BadAuthority,
    KeyPair,
    describe,
    make_authority,
)

AUTHORITY = "organization-ca"
"""Name of the CA's two files, without `.crt` and `.key`."""
HOLDERS = frozenset({Role.CLIENT_ACCESS, Role.HUB_TRANSPORT, Role.EDGE_TRANSPORT})
"""Who is given a certificate."""
MAX_FILE_BYTES = 1 << 20
"""Of a certificate or key file that is read; real ones have a few kB."""

authority_option = click.option(
    "--ca", "authority", metavar="DIR", required=True, type=click.Path(path_type=Path), help="The CA's folder."
)
out_option = click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Where the files go.  [default: the CA's folder]"
)
days_option = click.option(
    "--days",
    type=click.IntRange(1, AUTHORITY_DAYS),
    default=CERTIFICATE_DAYS,
    show_default=True,
    help="How long the certificate is good.",
)


@click.group("ca")
def command() -> None:
    """The organization's own CA: front ends, hubs and edges know each other by its certificates.

    Keep its folder on one machine, best one that is none of these: whoever has the CA's key can be any of them.
    """


@command.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", default="Gatepost", show_default=True, help="The organization's name, for the certificate.")
@click.option("--domain", "domains", multiple=True, metavar="DOMAIN", help="Sign only for hosts below it; repeatable.")
def init(directory: Path, name: str, domains: tuple[str, ...]) -> None:
    """Make the organization's CA in DIRECTORY. One that is there stays as it is."""
    certificate, key = _files(directory, AUTHORITY)
    for file in (certificate, key):
        if file.exists():
            raise click.ClickException(f"{file} is there already: a new CA would make every server a stranger")
    try:
        pair = make_authority(name, datetime.now(UTC), domains)
    except ValueError as error:
        raise click.ClickException(f"no CA: {error}") from error
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write({key: pair.private_key, certificate: pair.certificate}, secret=key)
    click.echo(f"Made {certificate} and {key}.")
    click.echo(f"Keep {key.name} here and safe. Copy {certificate.name} to every front end, and write there:\n")
    click.echo(f'    organization_ca = "{certificate.name}"        # in [front_end], with its path\n')
    click.echo(f"Next, for each front end: gatepost ca issue SERVER --ca {directory}")


@command.command()
@click.argument("server")
@config_option
@authority_option
@out_option
@days_option
@click.option("--force", is_flag=True, help="Replace files that are there.")
def issue(server: str, config: str, authority: Path, out: Path | None, days: int, *, force: bool) -> None:
    """Make the certificate by which the organization's other servers know SERVER, with a new key.

    SERVER is a front end, hub or edge of the organization in the configuration file.
    """
    certificate, key = _files(out or authority, f"{_file_word(server)}-peer")
    for file in (certificate, key):
        if file.exists() and not force:
            raise click.ClickException(f"{file} is there already: gatepost ca renew {server}, or --force for a new key")
    _make(server, config, authority, (certificate, key), days, None)


@command.command()
@click.argument("server")
@config_option
@authority_option
@out_option
@days_option
def renew(server: str, config: str, authority: Path, out: Path | None, days: int) -> None:
    """Make a new certificate for the key of SERVER's old one, with the names that the organization gives it now.

    The old certificate must be there, the key need not. For a new key as well: gatepost ca issue --force.
    """
    certificate, key = _files(out or authority, f"{_file_word(server)}-peer")
    if not certificate.exists():
        raise click.ClickException(f"{certificate} is not there: gatepost ca issue {server}")
    try:
        old = certificates(_read(certificate))[0]
    except ValueError as error:
        raise click.ClickException(f"{certificate} {error}") from error
    _make(server, config, authority, (certificate, key), days, old)


@command.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
def show(files: tuple[Path, ...]) -> None:
    """Say whose certificates are in each FILE, how long they are good, and their fingerprints."""
    faulty = False
    for file in files:
        try:
            found = certificates(_read(file))
        except ValueError as error:
            click.echo(f"{file}: {error}", err=True)
            faulty = True
            continue
        except click.ClickException as error:
            click.echo(error.message, err=True)
            faulty = True
            continue
        for certificate in found:
            _show(file, certificate)
    if faulty:
        raise click.ClickException("not every file could be shown")


def _show(file: Path, certificate: Certificate) -> None:
    said = describe(certificate)
    kind = "CA" if said.is_authority else "certificate"
    click.echo(f"{file}: {kind} {printable(said.subject)}, signed by {printable(said.issuer)}")
    fault = validity_fault(certificate, datetime.now(UTC))
    until = f"{said.not_before:%Y-%m-%d %H:%M} to {said.not_after:%Y-%m-%d %H:%M} UTC"
    click.echo(f"    valid        {until}{f' ({fault})' if fault else ''}")
    if said.names:
        click.echo(f"    names        {printable(', '.join(said.names))}")
    click.echo(f"    fingerprint  sha256 {said.fingerprint}")


def _make(
    name: str, config: str, directory: Path, files: tuple[Path, Path], days: int, renewed: Certificate | None
) -> None:
    """Sign, write what is new, say what is to be done with it."""
    server = _holder(_organization(config), name)
    certificate, key = files
    try:
        pair = _authority(directory).issue(server, datetime.now(UTC), days, renewed)
    except BadAuthority as error:
        raise click.ClickException(str(error)) from error
    certificate.parent.mkdir(parents=True, exist_ok=True)
    new = {certificate: pair.certificate}
    _write(new | {key: pair.private_key} if renewed is None else new, secret=key)
    if renewed is not None:
        click.echo(f"Made {certificate} anew, good for {days} days.")
        click.echo(f"Copy it to {name} over the old one, then reload: kill -HUP, or systemctl reload gatepost.")
        return
    click.echo(f"Made {certificate} and {key}, good for {days} days.")
    click.echo(f"Copy the first and move the second to {name}, and write there, in [front_end]:\n")
    click.echo(f'    peer_certificate = "{certificate.name}"        # each with its path')
    click.echo(f'    peer_private_key = "{key.name}"')
    click.echo(f'    organization_ca = "{AUTHORITY}.crt"\n')
    if server.peer_endpoint is None and Role.CLIENT_ACCESS in server.roles:
        click.echo(f"To take requests of other front ends {name} also needs, in the organization:\n")
        click.echo(f"    [servers.{name}.endpoints]\n    peer = {{}}        # port 444\n")
    click.echo("Then reload it: kill -HUP, or systemctl reload gatepost.")


def _authority(directory: Path) -> Authority:
    certificate, key = _files(directory, AUTHORITY)
    if not certificate.exists() or not key.exists():
        raise click.ClickException(f"there is no CA in {directory}: gatepost ca init {directory}")
    try:
        return Authority.load(KeyPair(_read(certificate), _read(key)))
    except BadAuthority as error:
        raise click.ClickException(str(error)) from error


def _organization(config: str) -> Organization:
    """The organization alone: the front end's own certificates need not be there, they are being made."""
    loaded = load_organization(config)
    if loaded.organization is None:
        for finding in [finding for finding in loaded.findings if finding.is_error][:SHOWN_FAULTS]:
            click.echo(str(finding), err=True)
        raise click.ClickException(f"{config} cannot be used, errors: {loaded.errors}")
    return loaded.organization


def _holder(organization: Organization, name: str) -> Server:
    """A server that may have a certificate. Raises `UnknownName`."""
    names = [server.name for server in organization.servers.values() if not server.roles.isdisjoint(HOLDERS)]
    if name in names:
        return organization.servers[name]
    what = "is no front end, hub or edge" if name in organization.servers else "is not a server"
    raise UnknownName(f"{name} {what} of the organization; those are: {', '.join(sorted(names)) or 'none'}")


def _file_word(server: str) -> str:
    """A server's name as a file's: no separator of paths survives."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in server.lower()).lstrip(".") or "server"


def _files(directory: Path, word: str) -> tuple[Path, Path]:
    return directory / f"{word}.crt", directory / f"{word}.key"


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE_BYTES)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error


def _write(contents: Mapping[Path, bytes], *, secret: Path) -> None:
    """Put all files there, each in one step and the first only when all are written: they belong together.

    `secret` is never readable by others, not even for a moment. Raises `click.ClickException`.
    """
    made: dict[Path, Path] = {}
    file, changed = secret, "nothing was changed"
    try:
        for file, content in contents.items():
            made[file] = file.with_name(f".{file.name}.new")
            _write_new(made[file], content, 0o600 if file == secret else 0o644)
        for file, temporary in made.items():
            temporary.replace(file)
            changed = f"{file} is new already"
    except OSError as error:
        for temporary in made.values():
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise click.ClickException(f"{file} cannot be written: {error.strerror}; {changed}") from error


def _write_new(file: Path, content: bytes, mode: int) -> None:
    file.unlink(missing_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
