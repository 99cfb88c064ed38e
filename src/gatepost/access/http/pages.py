"""What all pages of our own share: one document, one style, one set of fields.

No script, no file from anywhere: the style stands in the page, and the page's policy allows just that style by its
hash. Readable at 360 pixels, light or dark as the reader's system is.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from html import escape

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--dim:#4a5563;--paper:#eef1f5;--card:#fff;--line:#8794a6;--key:#0b5cad;
--on-key:#fff;--bad:#a3141e}
@media (prefers-color-scheme:dark){:root{--ink:#e8ecf2;--dim:#b3bdca;--paper:#12161c;--card:#1c222b;--line:#7d8a9c;
--key:#7ab8f5;--on-key:#0a1a2b;--bad:#ff9a9a}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;display:flex;align-items:flex-start;justify-content:center;background:var(--paper);
color:var(--ink);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{width:100%;max-width:28rem;margin:0;padding:1.5rem;background:var(--card)}
@media (min-width:32rem){main{margin:4rem 1rem;padding:2rem;border-radius:.5rem;box-shadow:0 1px 6px #0003}}
h1{margin:0 0 1rem;font-size:1.5rem;line-height:1.25}
a{color:var(--key)}
label{display:block}
fieldset{margin:1rem 0;padding:0;border:0}
legend{padding:0;font-weight:600}
input[type=text],input[type=password]{display:block;width:100%;margin:.25rem 0 1rem;padding:.6rem;font:inherit;
color:inherit;background:transparent;border:1px solid var(--line);border-radius:.25rem}
button,.button{display:inline-block;min-height:2.75rem;padding:.6rem 1.25rem;font:inherit;font-weight:600;
text-decoration:none;color:var(--on-key);background:var(--key);border:0;border-radius:.25rem;cursor:pointer}
input[type=radio]{width:1.25rem;height:1.25rem;margin:0 .5rem 0 0;vertical-align:-.2rem;accent-color:var(--key)}
.choice{padding:.5rem 0 .5rem 1.75rem;text-indent:-1.75rem}
:focus-visible{outline:3px solid var(--key);outline-offset:2px}
.bad{color:var(--bad);font-weight:600}
.bad:empty,.said:empty{display:none}
.dim{color:var(--dim);font-size:.9rem}
"""
_HASH = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()

PAGE_TYPE = b"text/html; charset=utf-8"
"""The media type of a page."""

PAGE_FIELDS = (
    b"Content-Security-Policy: default-src 'none'; style-src 'sha256-%b'; form-action https:; base-uri 'none'; "
    b"frame-ancestors 'none'\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Referrer-Policy: same-origin\r\n" % _HASH.encode()
)
"""Header lines of every page; that it is never stored stands in each of our answers already.

`form-action` names no host: browsers apply it to redirects after a form too, and a user who has just signed in may be
sent to another site's front end. With `no-referrer` browsers would send forms with `Origin: null`, which we refuse.
"""


def document(title: str, body_html: str) -> bytes:
    """A whole page: `title` (plain text) is also its heading, `body_html` stands below it and is HTML already.

    Classes for the body: `button` (a link that looks like one), `bad` (an error), `dim` (small print), `choice`.
    """
    shown = escape(title)
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{shown}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{shown}</h1>\n{body_html}\n</main></body></html>\n"
    ).encode("utf-8", "replace")
