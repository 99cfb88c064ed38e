"""`gatepost check`: every fault of a configuration, one a line, with an exit status for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from gatepost.configuration.compare import compare
from gatepost.configuration.files import file_mode, this_machine
from gatepost.configuration.findings import LocatedFinding, printable
from gatepost.configuration.load import Loaded, load

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
    return sorted(dict.fromkeys(found), key=lambda finding: not finding.is_error)


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
