"""One TOML file: read, parsed, with its lines; and the list in which all faults of a load are collected."""

from __future__ import annotations

import os.path
import re
import stat
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gatepost.configuration.findings import LocatedFinding
from gatepost.configuration.lines import Lines
from gatepost.organization.faults import Path, error
from gatepost.organization.model import Finding

Read = Callable[[str], bytes]
"""From a path to the file's content; raises OSError."""

MAX_FILE_BYTES = 8 * 1024 * 1024
"""A thousand servers are about 300 kB; what is larger is not a configuration."""
MAX_DEPTH = 32
"""Tables within tables; ours are nested 5 deep. Deeper ones would only exhaust the stack of whoever walks them."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_file(path: str) -> bytes:
    """The content of a regular file of at most `MAX_FILE_BYTES`. Raises OSError."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("it is not a regular file")
            content = file.read(MAX_FILE_BYTES + 1)
    except ValueError as fault:  # a path with a NUL in it
        raise OSError(str(fault)) from fault
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"it is larger than {MAX_FILE_BYTES} bytes")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    """A named pipe without a writer must not hold up the start."""
    return os.open(path, flags | os.O_NONBLOCK)


def attempt(path: str, read: Read) -> bytes | str:
    """The content of `path`, or why it cannot be read, in the system's words."""
    try:
        return read(path)
    except OSError as fault:
        return fault.strerror or str(fault) or type(fault).__name__


@dataclass
class Document:
    """A file's data and lines. `path` is as the operator named it; other paths in it are relative to its folder."""

    path: str
    data: dict[str, Any] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)

    @cached_property
    def lines(self) -> Lines:
        """The file's lines; looked for when the first finding needs one, which a sound file never does."""
        return Lines(self.content)

    def beside(self, path: str) -> str:
        """`path`, which this file names, from where the process is."""
        return os.path.join(os.path.dirname(self.path), path)  # noqa: PTH118, PTH120 - a Path would drop "./"


class Findings:
    """Faults with their places, in the order in which they are found."""

    def __init__(self) -> None:
        self.found: list[LocatedFinding] = []
        self.faulty: set[Path] = set()
        """Places whose faults are reported: a neutral value stands there, and what follows from it is no news."""

    def add(self, document: Document, finding: Finding) -> None:
        """Add one fault of `document`, unless it follows from one that is reported."""
        if not self._follows(finding.path) and not (finding.rests_on and self._follows(finding.rests_on)):
            line = document.lines.of(finding.path)
            self.found.append(LocatedFinding(finding, document.path, line))

    def _follows(self, path: Path) -> bool:
        """Whether a finding at `path` may only follow from a reported fault at, in or around that place."""
        return any(path[: len(bad)] == bad or bad[: len(path)] == path for bad in self.faulty)

    def add_all(self, document: Document, findings: Iterable[Finding]) -> None:
        """Add faults of `document`."""
        for finding in findings:
            self.add(document, finding)

    def add_at(self, document: Document, line: int, finding: Finding) -> None:
        """Add a fault whose line is known."""
        self.found.append(LocatedFinding(finding, document.path, line))

    @property
    def errors(self) -> bool:
        """Whether any is an error."""
        return any(finding.is_error for finding in self.found)

    def sorted(self) -> tuple[LocatedFinding, ...]:
        """Errors first, then by file (in the order of reading) and line."""
        files = list(dict.fromkeys(finding.file for finding in self.found))
        return tuple(sorted(self.found, key=lambda found: (not found.is_error, files.index(found.file), found.line)))


def parse(path: str, read: Read, findings: Findings, named_by: tuple[Document, Path] | None = None) -> Document | None:
    """The document at `path`; None when it cannot be read or is no TOML, which `findings` then says.

    `named_by` is the key of another file that names this one, where the operator will look for the fault.
    """
    document = Document(path)
    content = attempt(path, read)
    if isinstance(content, str):
        where, key = named_by or (document, ())
        who = "the file" if named_by is None else f"the file {path}"
        findings.add(where, error(key, who, f"cannot be read: {content}", "correct its path or its permissions"))
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        findings.add_at(document, line, error((), "the file", "is not UTF-8 text", "save it as UTF-8"))
        return None
    try:
        document.data = tomllib.loads(text)
        if too_deep(document.data):
            raise RecursionError  # noqa: TRY301 - the same fault as tomllib's own
    except RecursionError:
        remedy = "no table of the configuration is nested like that"
        findings.add(document, error((), "the file", "is nested too deeply", remedy))
        return None
    except ValueError as fault:
        findings.add_at(document, *_syntax(text, str(fault)))
        return None
    document.content = text.encode()
    return document


def _syntax(text: str, message: str) -> tuple[int, Finding]:
    """Line and finding for what tomllib says."""
    place = _PLACE.search(message)
    words = _PLACE.sub("", message)
    if place is None:
        return 0, error((), "the file", f"is not valid TOML: {words}", "correct it")
    if place[1] is None:
        line = text.count("\n") + (not text.endswith("\n"))
        return line, error((), "the file", f"is not valid TOML: {words} at its end", "complete it")
    remedy = f"correct it at column {place[2]}"
    return int(place[1]), error((), "the file", f"is not valid TOML: {words}", remedy)


def too_deep(data: dict[str, Any]) -> bool:
    """Whether `data` is nested more than `MAX_DEPTH` deep; dotted keys can nest without bound."""
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:  # noqa: ANN401 - any TOML value
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
