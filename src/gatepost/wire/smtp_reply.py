"""Replies of SMTP and LMTP (RFC 5321, section 4.2; enhanced codes RFC 3463 and RFC 2034)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: `code` is 200 to 599, `enhanced` is `2.1.5` or empty, `text` may have several lines parted by LF."""

    code: int
    text: str
    enhanced: str = ""

    @property
    def positive(self) -> bool:
        """2yz or 3yz."""
        return self.code < 400

    @property
    def transient(self) -> bool:
        """4yz: try again later."""
        return 400 <= self.code < 500

    @property
    def permanent(self) -> bool:
        """5yz."""
        return self.code >= 500

    def encode(self) -> bytes:
        """The reply on the wire. The text is printed as ASCII; everything else becomes `?`."""
        lines = self.text.split("\n")
        code = f"{self.code}"
        enhanced = f"{self.enhanced} " if self.enhanced else ""
        written = [f"{code}-{enhanced}{line}" for line in lines[:-1]]
        written.append(f"{code} {enhanced}{lines[-1]}")
        return ("\r\n".join(_clean(line) for line in written) + "\r\n").encode("ascii")

    def __str__(self) -> str:
        """One line, for logs and operators: `550 5.1.1 No such user`."""
        return _clean(" ".join(word for word in (f"{self.code}", self.enhanced, self.text.replace("\n", " ")) if word))


def _clean(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(character if " " <= character <= "~" else "?" for character in line)
