"""What the shell says when something is not as it should be."""

from __future__ import annotations

from gatepost.configuration.findings import printable


class ShellError(Exception):
    """One fault in words for the operator. Nothing of the statement was done unless the message says so."""


class LanguageError(ShellError):
    """The text is no command. `offset` is the character where that shows."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        super().__init__(message)
        self.text = text
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.args[0]}\n{self._place()}"

    def _place(self) -> str:
        """The line at fault, with a mark below the place."""
        start = self.text.rfind("\n", 0, self.offset) + 1
        end = self.text.find("\n", self.offset)
        line = self.text[start : len(self.text) if end < 0 else end]
        column = self.offset - start
        first = max(0, column - SHOWN_BEFORE)
        shown = line[first : column + SHOWN_AFTER]
        return f"  {printable(shown)}\n  {' ' * len(printable(line[first:column]))}^"


class Incomplete(LanguageError):
    """The text may go on in another line: a quote, bracket or pipe is open."""


SHOWN_BEFORE = 60
SHOWN_AFTER = 40
"""Characters of a faulty line around the place; more than a terminal's width would move the mark."""
