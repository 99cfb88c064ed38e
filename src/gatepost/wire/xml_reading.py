"""Reading small XML documents of clients: bounded in size, depth and elements, without document types and entities.

expat reads; what could make it do more work than the document is long is refused, not expanded. SOAP forbids document
types anyway (SOAP 1.1 section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from xml.parsers import expat

MAX_XML = 256 * 1024
"""Octets that are looked at. A hundred mailboxes, the most that one Availability request has, are 30 KiB."""
MAX_DEPTH = 64
"""Levels of elements; SOAP requests have a dozen."""
MAX_ELEMENTS = 10_000
"""Elements of one document: a few milliseconds of work."""

_ENCODINGS = frozenset({"utf-8", "utf8", "utf-16", "us-ascii", "ascii", "iso-8859-1"})
"""Encodings that expat knows itself; for others it would ask Python's codecs."""

Path = tuple[str, ...]
"""Local names from the root to an element; namespaces and prefixes are left out."""


class BadXml(ValueError):
    """A document that is not well formed, or not one that is read here."""


class _Enough(Exception):
    """Whoever asked knows enough."""


def read_xml(data: bytes, element: Callable[[Path, str], bool]) -> None:
    """Call `element(path, text)` at the end of each element, with its own text stripped, until it answers True.

    UTF-8 and UTF-16 (by its byte order mark, or as declared) are read. A document longer than `MAX_XML` is read up to
    there. Raises `BadXml`.
    """
    reader = _Reader(element)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.XmlDeclHandler = reader.declaration
    parser.StartDoctypeDeclHandler = reader.document_type
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.Parse(data[:MAX_XML], len(data) <= MAX_XML)
    except _Enough:
        return
    except (expat.ExpatError, LookupError, ValueError) as fault:
        raise BadXml(str(fault)) from None


class _Reader:
    """What the parser calls."""

    def __init__(self, element: Callable[[Path, str], bool]) -> None:
        self._element = element
        self._path: list[str] = []
        self._texts: list[list[str]] = []
        self._count = 0

    def declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        """`<?xml …?>`."""
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise BadXml("an encoding that is not read")

    def document_type(self, *_: object) -> None:
        """`<!DOCTYPE …>`: entities could only be declared there."""
        raise BadXml("a document type")

    def start(self, name: str, _: dict[str, str]) -> None:
        """An element begins."""
        self._count += 1
        if self._count > MAX_ELEMENTS or len(self._path) >= MAX_DEPTH:
            raise BadXml("too many elements, or too deep")
        self._path.append(name.rpartition(" ")[2])
        self._texts.append([])

    def text(self, data: str) -> None:
        """Some of an element's text."""
        if self._texts:
            self._texts[-1].append(data)

    def end(self, _: str) -> None:
        """An element is complete."""
        if self._element(tuple(self._path), "".join(self._texts.pop()).strip()):
            raise _Enough
        self._path.pop()
