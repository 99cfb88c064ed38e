"""`gatepost check`: every fault of a configuration, one a line, with an exit status for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from gatepost.configuration.compare import compare
from gatepost.configuration.files import file_mode, this_machine
from gatepost.configuration.findings import LocatedFinding, printable
from gatepost.configuration.load import Loaded, load
from gatepost.configuration.settings import Configuration
from gatepost.directory.port import DirectoryUnavailable
from gatepost.directory.sqlite import SqliteDirectory
from gatepost.organization.faults import listed, warning
from gatepost.organization.model import Organization, Role
from gatepost.organization.names import canonical_login_name

FAULTY = 1


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--server", metavar="SERVER", help="Be this server's front end, whatever the file says.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], server: str | None, as_json: bool, strict: bool) -> None:
    """Check a configuration and name every fault in it.

    Prints one finding a line, errors first, then a summary. With several files, such as those of all front ends, they
    are also compared with each other. The account and the folders that they name are looked for on this machine. Exit
    status: 0 no errors (warnings may be there), 1 errors (with --strict: warnings too), 2 wrong usage.
    """
    if server is not None and len(files) > 1:
        raise click.UsageError("--server goes with one file")
    machine = this_machine()
    loads = [load(file, server=server, mode_of=file_mode, machine=machine, front_end_required=False) for file in files]
    findings = _all_findings(files, loads)
    errors = sum(finding.is_error for finding in findings)
    warnings = len(findings) - errors
    if as_json:
        click.echo(json.dumps(_as_data(findings, errors, warnings), indent=2))
    else:
        for finding in findings:
            click.echo(str(finding))
        click.echo(_summary(files, loads, errors, warnings))
    ctx.exit(FAULTY if errors or (strict and warnings) else 0)


def _all_findings(files: Sequence[str], loads: Sequence[Loaded]) -> list[LocatedFinding]:
    """Findings of all files, once each (files may share an organization), errors first."""
    found = [finding for loaded in loads for finding in loaded.findings]
    front_ends = {file: loaded.configuration for file, loaded in zip(files, loads, strict=True) if loaded.configuration}
    found += compare(front_ends)
    found += [each for file, loaded in front_ends.items() for each in _postmaster_missing(file, loaded)]
    return sorted(dict.fromkeys(found), key=lambda finding: not finding.is_error)


def _postmaster_missing(file: str, configuration: Configuration) -> Iterator[LocatedFinding]:
    """Whether a hub's directory has nobody for a `postmaster` that RFC 5321, section 4.5.1, wants. A directory that is
    not there yet, or not for this account, is not judged."""
    front_end, organization = configuration.front_end, configuration.organization
    if front_end.transport is None or Role.HUB_TRANSPORT not in configuration.server.roles or not front_end.directory:
        return
    directory = SqliteDirectory(front_end.directory)
    try:
        missing = [domain for domain in organization.domain_kinds if _is_missing(organization, directory, domain)]
    except DirectoryUnavailable:
        return
    finally:
        directory.close()
    if missing:
        message = f"nobody has the address postmaster at {listed(missing)}: mail to it, and answers to reports, go back"
        remedy = f"let somebody have it: gatepost user set NAME --add-address postmaster@{organization.default_domain}"
        yield LocatedFinding(warning(("organization", "accepted_domains"), "organization", message, remedy), file)


def _is_missing(organization: Organization, directory: SqliteDirectory, domain: str) -> bool:
    address = f"postmaster@{domain}"
    others = organization.postmasters(address)
    names = (canonical_login_name(each, "") for each in (address, *others))
    return bool(others) and all(directory.find(name) is None for name in names)


def _summary(files: Sequence[str], loads: Sequence[Loaded], errors: int, warnings: int) -> str:
    name = printable(files[0]) if len(files) == 1 else f"{len(files)} files"
    text = f"{name}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"
    if all(loaded.organization is not None and loaded.configuration is None for loaded in loads):
        text += " (an organization alone: there is no [front_end])"
    return text


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"


def _as_data(findings: Sequence[LocatedFinding], errors: int, warnings: int) -> dict[str, object]:
    return {
        "errors": errors,
        "warnings": warnings,
        "findings": [
            {
                "severity": located.finding.severity.value,
                "file": located.file,
                "line": located.line,
                "path": list(located.finding.path),
                "object": located.finding.object_name,
                "message": located.finding.message,
                "remedy": located.finding.remedy,
            }
            for located in findings
        ],
    }
