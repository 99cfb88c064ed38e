"""Findings with their place in a file, and how they read."""

from __future__ import annotations

from dataclasses import dataclass

from gatepost.organization.model import Finding, Severity


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding, the file as the operator named it, and the line (from 1; 0: the file as a whole)."""

    finding: Finding
    file: str
    line: int = 0

    @property
    def is_error(self) -> bool:
        """Whether it keeps the configuration from being used."""
        return self.finding.severity is Severity.ERROR

    def __str__(self) -> str:
        """One line: `organization.toml:14: server MBX-01: site "usaa" does not exist; did you mean "usa"? …`."""
        finding = self.finding
        place = f"{self.file}:{self.line}" if self.line else self.file
        word = "" if self.is_error else "warning: "
        return printable(f"{place}: {word}{finding.object_name}: {finding.message}; {finding.remedy}")


def printable(text: str) -> str:
    """`text` with everything escaped that could move a terminal's cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class ConfigurationError(Exception):
    """The configuration cannot be used. `findings` are all its faults, warnings included."""

    def __init__(self, findings: tuple[LocatedFinding, ...]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings
