"""The shell's language: what the source system's syntax means, and that nothing breaks it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.shell.binding import Changes, Kind, Parameter, bind
from gatepost.shell.errors import Incomplete, LanguageError
from gatepost.shell.parser import MAX_CHARACTERS, MAX_DEPTH, parse
from gatepost.shell.quoting import quote, quoted_if_needed
from gatepost.shell.syntax import Command, Comparison, Conditions, Named, Positional

SIGNS = "-–—\"“”„'‘’‚`$@(){}[]|;,#<>:=!?*\\/ \t\n\r\0ab1_.é" + "\N{NO-BREAK SPACE}"
any_text = st.text() | st.text(alphabet=SIGNS, max_size=40)


def one(text: str) -> Command:
    (statement,) = parse(text)
    (command,) = statement.commands
    return command


def values(text: str) -> list[Any]:
    """The elements of the only command: values, and names with a dash."""
    return [f"-{e.name}" if isinstance(e, Named) and not e.has_value else e.value for e in one(text).elements]


@given(any_text)
def test_whatever_the_text_is_it_parses_or_is_a_language_error(text: str) -> None:
    """No other exception, and the error's own text can always be made."""
    for candidate in (text, f"Get-X {text}", f"Get-X | Where-Object {{ {text}", f"Get-X @{{{text}"):
        fault = _fault(candidate)
        assert fault is None or (str(fault) and 0 <= fault.offset <= len(candidate))


def _fault(text: str) -> LanguageError | None:
    try:
        parse(text)
    except LanguageError as fault:
        return fault
    return None


@given(any_text)
def test_quoted_text_reads_back_as_it_was(text: str) -> None:
    """Both ways of quoting, as a value on its own and in a list."""
    assert values(f"Get-X {quote(text)}") == [text]
    assert values(f"Get-X {quote(text)},'b'") == [(text, "b")]
    assert values(f"Get-X {quoted_if_needed(text)}") == [text]


@given(any_text)
def test_double_quotes_with_backticks_read_back(text: str) -> None:
    """Everything that means something in double quotes can be escaped."""
    escaped = "".join(f"`{c}" if c in '`$"“”„' else c for c in text)
    assert values(f'Get-X "{escaped}"') == [text]


def test_the_sources_line() -> None:
    """As printed."""
    command = one('set-owavirtualdirectory "owa (default web site)" -RedirectToOptimalOWAServer $false')
    assert command.name == "set-owavirtualdirectory"
    assert values('x "owa (default web site)" -RedirectToOptimalOWAServer $false') == [
        "owa (default web site)",
        "-RedirectToOptimalOWAServer",
        False,
    ]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x $true $FALSE $null", [True, False, None]),
        ("x @('a','b') a,b a , b", [("a", "b"), ("a", "b"), ("a", "b")]),
        ("x @()", [()]),
        ("x ('a')", [("a",)]),
        ('x \'it\'\'s\' "say ""hi"""', ["it's", 'say "hi"']),
        ('x "a`tb`n`u{263a}`$" a` b', ["a\tb\n\N{WHITE SMILING FACE}$", "a b"]),
        ('x "$true $null." "5 $" ', ["True .", "5 $"]),
        ("x C:\\a\\b https://x/?a=1&b=2 5 -1", ["C:\\a\\b", "https://x/?a=1&b=2", "5", "-1"]),
        ("x CAS-01\\'owa (Default Web Site)'", ["CAS-01\\owa (Default Web Site)"]),
        ("x –Server “a b”", ["-Server", "a b"]),
        ("x @{Add='a','b'; Remove=\"c\"}", [{"Add": ("a", "b"), "Remove": "c"}]),
        ("x a `\n b # and so on", ["a", "b"]),
        ("x <# not\nthis #> a", ["a"]),
        ("x -A:$false -B: 'c'", [False, "c"]),
        ("x -WhatIf", ["-WhatIf"]),
    ],
)
def test_values(text: str, meaning: list[object]) -> None:
    """Quotes, escapes, lists, hash tables, comments, word processors' dashes and quotes."""
    assert values(text) == meaning


@pytest.mark.parametrize(
    ("block", "comparison"),
    [
        ('{ $_.Server -eq "CAS-01" }', Comparison("Server", "eq", "CAS-01")),
        ("{$_.Name -LIKE 'owa*'}", Comparison("Name", "like", "owa*")),
        ("{ $_.Name -imatch '^owa' }", Comparison("Name", "match", "^owa")),
        ("{ $_.Server -in 'a','b' }", Comparison("Server", "in", ("a", "b"))),
        ("{ $_.ExternalUrl -ne $null }", Comparison("ExternalUrl", "ne", None)),
        ("{ $_.BasicAuthentication }", Comparison("BasicAuthentication", "")),
        ("{ -not $_.BasicAuthentication }", Comparison("BasicAuthentication", "not")),
        ("{ !$_.BasicAuthentication }", Comparison("BasicAuthentication", "not")),
        ("{ $_.MessageCount -gt 10 }", Comparison("MessageCount", "gt", "10")),
        (
            "{ Status -eq 'Retry' -and\n MessageCount -GE 10 }",
            Conditions((Comparison("Status", "eq", "Retry"), Comparison("MessageCount", "ge", "10"))),
        ),
    ],
)
def test_comparisons(block: str, comparison: Comparison | Conditions) -> None:
    """The simple form of `Where-Object`, and what a `-Filter` takes."""
    assert values(f"Where-Object {block}") == [comparison]


def test_statements_and_pipelines() -> None:
    """`;` and ends of lines separate; a `|` joins, at the end of a line too."""
    text = "Get-A | Format-List;\n\nGet-B |\n Where-Object { $_.X }\r\nGet-C"
    assert [[command.name for command in s.commands] for s in parse(text)] == [
        ["Get-A", "Format-List"],
        ["Get-B", "Where-Object"],
        ["Get-C"],
    ]
    assert parse(" ; # nothing\n") == ()


@pytest.mark.parametrize("text", ["x 'a", 'x "a', "x |", "x a,", "x @(", "x @{A=", "x {", "x { $_.A -eq", "x <# a"])
def test_unfinished_text_asks_for_more_lines(text: str) -> None:
    """A terminal goes on reading."""
    with pytest.raises(Incomplete):
        parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("$x = 5", "name of a command"),
        ('x "$name"', "no variables here, so no \\$name"),
        ("x $name", "\\$true, \\$false and \\$null are all"),
        ("x (Get-Y)", "commands are not run there"),
        ("x > file", "cannot be sent to a file here"),
        ("x { $_.A -eq 1 -and $_.B -eq 2 }", "one comparison is all"),
        ("x { $_.A -gte 1 }", "an operator is expected"),
        ("x -A: | y", "a value is missing after -A:"),
        ("x @splat", "@ begins a list"),
        ("x }", "} is not expected"),
        ("x a,$null,@{A='b'}", "can be in a list"),
    ],
)
def test_what_is_not_understood_is_said(text: str, words: str) -> None:
    """With the place below the line."""
    with pytest.raises(LanguageError, match=words) as fault:
        parse(text)
    assert str(fault.value).endswith("^")


def test_bounds() -> None:
    """Of the text, and of brackets within brackets."""
    parse("x " + "(" * MAX_DEPTH + ")" * MAX_DEPTH)
    with pytest.raises(LanguageError, match="nested too deeply"):
        parse("x " + "(" * (MAX_DEPTH + 1))
    with pytest.raises(LanguageError, match="more than"):
        parse(" " * (MAX_CHARACTERS + 1))


PARAMETERS = (
    Parameter("Identity", Kind.TEXT, position=0),
    Parameter("Server", Kind.TEXT, null=True),
    Parameter("ServerRole", Kind.TEXTS, words=("Mailbox", "ClientAccess")),
    Parameter("Redirect", Kind.FLAG),
    Parameter("Count", Kind.NUMBER),
    Parameter("WhatIf", Kind.SWITCH, aliases=("wi",)),
    Parameter("Members", Kind.CHANGES),
)


def bound(text: str) -> dict[str, object]:
    command = one(text)
    return dict(bind(PARAMETERS, command, text).values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x a", {"Identity": "a"}),
        ("x -WhatIf a -red $true", {"WhatIf": True, "Identity": "a", "Redirect": True}),
        ("x -wi:$false -COUNT 7", {"WhatIf": False, "Count": 7}),
        ("x -server $null -Redirect:0", {"Server": None, "Redirect": False}),
        ("x -ServerR mailbox,clientACCESS", {"ServerRole": ("Mailbox", "ClientAccess")}),
        ("x -m @{Add='a'; Remove='b','c'}", {"Members": Changes(add=("a",), remove=("b", "c"))}),
        ("x -Members a,b", {"Members": Changes(new=("a", "b"))}),
        ("x -Members $null", {"Members": Changes(new=())}),
    ],
)
def test_binding(text: str, expected: dict[str, object]) -> None:
    """By name, beginning of a name, alias and position; case makes no difference."""
    assert bound(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x -serv a -se b", "-serv may be any of -Server, -ServerRole: write more"),
        ("x -Sever a", "no parameter -Sever here; there are -Identity"),
        ("x a b", "takes no value here without a parameter's name"),
        ("x -Redirect maybe", "-Redirect takes \\$true or \\$false"),
        ("x -Redirect $null", "-Redirect takes"),
        ("x -Redirect", "-Redirect takes"),
        ("x -WhatIf $false", "write -WhatIf:\\$false, with a colon"),
        ("x -Count -1", "-Count takes a whole number"),
        ("x -Count 9999999999", "-Count takes a whole number"),
        ("x -ServerRole hub", "one of Mailbox, ClientAccess, not 'hub'"),
        ("x -Redirect 1 -red 0", "-Redirect is given twice"),
        ("x -Identity $true", "-Identity takes a text"),
        ("x -Members @{Ad='a'}", "-Members takes a list of texts, or changes"),
    ],
)
def test_what_does_not_bind_is_said(text: str, words: str) -> None:
    """Before anything runs."""
    with pytest.raises(LanguageError, match=words):
        bound(text)


def test_an_exact_name_wins_over_longer_ones() -> None:
    """`-Server` is no ambiguity though `-ServerRole` begins so."""
    assert bound("x -Server a") == {"Server": "a"}


def test_positions_are_of_values_only() -> None:
    """A value after a switch is not the switch's."""
    assert [type(e) for e in one("x -WhatIf a").elements] == [Named, Positional]
