"""`gatepost assertion-key`: keys by which Gatepost signs users in at mailbox servers (form `assertion`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from gatepost.peers.login_token import ALGORITHM, LoginSigner, make_key

AZP = "default"
"""The folder that Dovecot looks into for tokens without an authorized party (`azp`), as ours are."""

file_argument = click.argument("file", type=click.Path(path_type=Path))


@click.group("assertion-key")
def command() -> None:
    """Keys by which users are signed in at mailbox servers with the sign-in form "assertion"; see docs/oauth.md.

    Whoever has the key can be any user there: it belongs to the front ends alone.
    """


@command.command()
@file_argument
def make(file: Path) -> None:
    """Make a new private key in FILE. One that is there stays as it is."""
    pem = make_key()
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as output:
            output.write(pem)
    except FileExistsError:
        raise click.ClickException(f"{file} is there already: give the new key another name") from None
    except OSError as fault:
        raise click.ClickException(f"{file}: {fault.strerror}") from None
    click.echo(f"{file}: key {LoginSigner(pem).kid}")
    click.echo(
        f"Next: gatepost assertion-key export {file} FOLDER, and copy that to the servers before you use the key."
    )


@command.command()
@file_argument
@click.argument("folder", type=click.Path(path_type=Path))
def export(file: Path, folder: Path) -> None:
    """Write the public key of FILE into FOLDER, where Dovecot's oauth2 passdb finds it. Earlier ones stay there."""
    signer = _signer(file)
    target = folder / AZP / ALGORITHM / signer.kid
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(signer.public_pem)
        others = sorted(path.name for path in target.parent.iterdir() if path.name != signer.kid)
    except OSError as fault:
        raise click.ClickException(f"{target}: {fault.strerror}") from None
    click.echo(str(target))
    for other in others:
        click.echo(f"Also there: {other}. Remove it when no front end signs with it any more.")


@command.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
def jwks(files: tuple[Path, ...]) -> None:
    """Print the public keys of FILES as a JWK set, for servers that read one."""
    click.echo(json.dumps({"keys": [_signer(file).public_jwk for file in files]}, indent=2))


def _signer(file: Path) -> LoginSigner:
    try:
        return LoginSigner(file.read_bytes())
    except OSError as fault:
        raise click.ClickException(f"{file}: {fault.strerror}") from None
    except ValueError as fault:
        raise click.ClickException(f"{file} {fault}") from None
