"""The rules once more, as a flat table read from top to bottom: the first row whose columns all fit says the outcome.

Written from SPEC section C and the sources, not from the code: no function here calls another rule, no row knows of
servers, endpoints or virtual directories, and no code of the product is imported.
"""

from __future__ import annotations

from worlds import Facts

ORDER = {"2003": 1, "2007": 2, "2010": 3, "modern": 4}
KIND = {
    "imap": "mail", "pop3": "mail",
    "owa": "browser", "ecp": "browser", "activesync": "device", "ews": "program", "as": "program",
    "exchange": "old", "public": "old", "exchweb": "oldest",
}  # fmt: skip

YES, NO, NONE = {"yes"}, {"no"}, {"none"}
SAME, OTHER = {"same"}, {"other"}
OLD = {"2003", "2007", "2010"}
RPC = {"2007", "2010"}
MODERN, FIRST = {"modern"}, {"2003"}
NEWER = RPC | MODERN
MAIL, BROWSER, DEVICE, PROGRAM = {"mail"}, {"browser"}, {"device"}, {"program"}
WEB = {"browser", "device", "program", "old", "oldest"}

Row = tuple[str, dict[str, set[str]], str]

TABLE: list[Row] = [
    # --- IMAP and POP3
    ("C1", {"kind": MAIL, "site": SAME}, "serve MBX"),
    ("C10", {"kind": MAIL, "mailbox": MODERN, "through": NO}, "proxy MBX"),
    ("C10", {"kind": MAIL, "mailbox": MODERN, "from_peer": YES}, "proxy MBX"),
    ("C12", {"kind": MAIL, "mailbox": MODERN, "fits": NONE}, "refuse no client access server"),
    ("C2", {"kind": MAIL, "mailbox": MODERN, "fits": NO}, "refuse version mismatch"),
    ("C12", {"kind": MAIL, "mailbox": MODERN}, "proxy DOOR"),
    ("C9", {"kind": MAIL, "edition": {"rtm"}}, "refuse other site"),
    ("C9", {"kind": MAIL, "fits": NONE | NO}, "refuse other site"),
    ("C9", {"kind": MAIL}, "proxy DOOR"),
    # --- a 2003 mailbox by HTTP
    ("C7", {"mailbox": FIRST, "kind": BROWSER}, "refuse old mailbox"),
    ("C8", {"mailbox": FIRST, "kind": PROGRAM}, "refuse not supported"),
    ("C4", {"mailbox": FIRST, "present": NO}, "refuse no virtual directory"),
    ("C4", {"mailbox": FIRST, "kind": DEVICE, "integrated": NO}, "refuse no Integrated authentication"),
    ("O3", {"mailbox": FIRST, "internal": NONE}, "refuse no internal URL"),
    ("C7", {"mailbox": FIRST, "site": SAME}, "serve MBX"),
    ("C7", {"mailbox": FIRST}, "proxy MBX"),
    # --- the paths of 2003 for newer mailboxes
    ("C7", {"kind": {"oldest"}}, "refuse no virtual directory"),
    ("C7", {"kind": {"old"}}, "redirect own path"),
    # --- this site: a modern server serves itself, an older one by a web server that is none of ours
    ("C1", {"site": SAME, "present": NO}, "refuse no virtual directory"),
    ("C1", {"site": SAME, "mailbox": RPC, "fits": NONE}, "refuse no virtual directory"),
    ("C1", {"site": SAME, "mailbox": RPC, "reach": {"peer"}}, "refuse no virtual directory"),
    ("C2", {"site": SAME, "mailbox": RPC, "fits": NO}, "refuse version mismatch"),
    ("O3", {"site": SAME, "internal": NONE}, "refuse no internal URL"),
    ("C1", {"site": SAME, "mailbox": RPC}, "serve DOOR"),
    ("C1", {"site": SAME}, "serve MBX"),
    # --- modern, elsewhere
    ("C10", {"mailbox": MODERN, "present": NO}, "refuse no virtual directory"),
    ("O3", {"mailbox": MODERN, "internal": NONE}, "refuse no internal URL"),
    ("C10", {"mailbox": MODERN, "through": NO}, "proxy MBX"),
    ("C11", {"mailbox": MODERN, "from_peer": YES}, "proxy MBX"),
    ("C12", {"mailbox": MODERN, "fits": NONE}, "refuse no client access server"),
    ("C12", {"mailbox": MODERN, "reach": {"header", "basic"}}, "refuse no client access server"),
    ("C2", {"mailbox": MODERN, "fits": NO}, "refuse version mismatch"),
    ("C12", {"mailbox": MODERN}, "proxy DOOR as peer"),
    # --- 2007 and 2010, elsewhere
    ("C2", {"fits": NONE}, "refuse no client access server"),
    ("C2", {"present": NO}, "refuse no virtual directory"),
    ("C2", {"fits": NO}, "refuse version mismatch"),
    ("C3", {"edition": {"sp2"}, "kind": DEVICE, "external": YES, "follows": YES}, "redirect 451"),
    ("C5", {"edition": {"sp2"}, "kind": BROWSER, "external": YES, "switch": {"on"}}, "redirect page"),
    ("C5", {"edition": {"sp2"}, "kind": BROWSER, "external": YES, "switch": {"silent"}}, "redirect silent"),
    ("C3", {"internal": NONE}, "refuse no internal URL"),
    ("C3", {"integrated": NO}, "refuse no Integrated authentication"),
    ("C3", {"kind": DEVICE, "external": YES, "follows": YES}, "redirect 451"),
    ("C5", {"kind": BROWSER, "external": YES, "switch": {"on"}}, "redirect page"),
    ("C5", {"kind": BROWSER, "external": YES, "switch": {"silent"}}, "redirect silent"),
    ("C11", {"internal": {"http"}}, "refuse no internal URL"),
    ("C11", {"reach": {"basic"}}, "refuse no Integrated authentication"),
    ("C8", {"reach": {"peer"}}, "proxy DOOR as peer"),
    ("C8", {}, "proxy DOOR"),
]  # fmt: skip

ONCE = {"proxy DOOR", "proxy DOOR as peer", "redirect page", "redirect silent", "redirect 451", "redirect own path"}
"""What a request that came from a front end may not become (C11)."""


def fits(facts: Facts) -> str:
    """Whether the client access server beside the mailbox may be used: not newer than we, and able to open it (C2)."""
    if facts.door == "none":
        return "none"
    knows = facts.door in {facts.mailbox, "modern"} or facts.mailbox == "2003"
    return "yes" if knows and ORDER[facts.door] <= ORDER[facts.own] else "no"


def expected(facts: Facts) -> tuple[str, int]:
    """The outcome by the table, and the number of its row."""
    columns = {**vars(facts), "kind": KIND[facts.ask], "fits": fits(facts)}
    for number, (_, wanted, outcome) in enumerate(TABLE):
        if all(columns[name] in words for name, words in wanted.items()):
            return "refuse loop" if facts.from_peer == "yes" and outcome in ONCE else outcome, number
    raise AssertionError(f"no row for {facts}")
