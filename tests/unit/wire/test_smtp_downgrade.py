"""Content in seven bits for servers without 8BITMIME (field case 17): read back with Python's own MIME parser."""

from __future__ import annotations

import contextlib
import email
import email.policy
import itertools
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatepost.wire.smtp_downgrade import MAX_LINE, MAX_LOOK, CannotConvert, Downgrade

TEXT = "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGrüße aus Köln\r\n".encode()


def convert(content: bytes, *cuts: int) -> bytes:
    converter = Downgrade()
    edges = [0, *cuts, len(content)]
    return b"".join([*(converter.feed(content[a:b]) for a, b in itertools.pairwise(edges)), converter.finish()])


def parsed(content: bytes) -> EmailMessage:
    message = email.message_from_bytes(content, policy=email.policy.SMTP)
    assert isinstance(message, EmailMessage)
    return message


def head(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("Subject: s", "MIME-Version: 1.0", *lines)).encode()


def multipart(kind: str, *parts: bytes, end: bytes = b"") -> bytes:
    begin = head(f'Content-Type: multipart/{kind}; boundary="=_b"', "Content-Transfer-Encoding: 8bit")
    return begin + b"\r\npreamble\r\n" + b"".join(b"--=_b\r\n" + part for part in parts) + b"--=_b--\r\n" + end


def test_text_becomes_quoted_printable() -> None:
    out = convert(head() + TEXT)
    assert out.isascii()
    assert b"Content-Transfer-Encoding: quoted-printable\r\n" in out
    assert parsed(out).get_content() == "Grüße aus Köln\r\n"


def test_lines_keep_to_76_and_long_ones_come_back_whole() -> None:
    text = ("ä" * 100_000 + " \r\n.\r\nFrom here  \r\n").encode()
    content = head() + TEXT.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + text
    out = convert(content)
    assert max(map(len, out.split(b"\r\n"))) <= 76
    assert parsed(out).get_payload(decode=True) == text


def test_binary_and_other_eight_bit_parts_become_base64() -> None:
    data = bytes(range(256)) * 40 + b"\r\n\r\nend"
    for encoding in ("binary", "8bit"):
        part = f"Content-Type: image/x\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode() + data + b"\r\n"
        out = convert(multipart("mixed", part, TEXT))
        assert out.isascii()
        image, text = parsed(out).iter_parts()
        assert image.get_payload(decode=True) == data
        assert text.get_content() == "Grüße aus Köln"


def test_binary_text_becomes_base64_so_that_no_octet_changes() -> None:
    data = "bare\nline\rends ü".encode()
    part = b"Content-Type: text/plain\r\nContent-Transfer-Encoding: binary\r\n\r\n" + data + b"\r\n"
    (text,) = parsed(convert(multipart("mixed", part))).iter_parts()
    assert text.get_payload(decode=True) == data


def test_a_content_of_its_own_in_base64_keeps_its_last_line_end() -> None:
    content = head("Content-Type: image/x", "Content-Transfer-Encoding: binary") + b"\r\n\xff\r\n"
    assert parsed(convert(content)).get_payload(decode=True) == b"\xff\r\n"


def test_what_is_seven_bits_passes_as_it_is() -> None:
    inner = b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n"
    plain = b"Content-Type: text/plain\r\n\r\nplain = text\r\n"
    out = convert(multipart("mixed", inner, plain, TEXT, end=b"epilogue\r\n"))
    assert inner in out
    assert plain in out
    assert out.startswith(head('Content-Type: multipart/mixed; boundary="=_b"', "Content-Transfer-Encoding: 7bit"))
    assert out.endswith(b"--=_b--\r\nepilogue\r\n")


def test_a_part_that_does_not_say_so_is_looked_at() -> None:
    """Many clients send eight bits without a word."""
    out = convert("Subject: s\r\n\r\nplain first\r\nGrüße\r\n".encode())
    assert b"MIME-Version: 1.0\r\n" in out
    assert parsed(out).get_payload(decode=True) == "plain first\r\nGrüße\r\n".encode()
    unlabelled = b"Content-Type: image/x\r\n\r\n\xff\xfe\r\n"
    (image,) = parsed(convert(multipart("mixed", unlabelled))).iter_parts()
    assert image.get_payload(decode=True) == b"\xff\xfe"


def test_a_long_part_that_does_not_say_so_is_not_kept_in_memory() -> None:
    text = b"x" * 70 + b"\r\n"
    content = b"Subject: s\r\n\r\n" + text * (MAX_LOOK // 70 + 2)
    converter = Downgrade()
    assert converter.feed(content)
    assert (
        parsed(convert(content + b"\xff\r\n")).get_payload(decode=True)
        == content.partition(b"\r\n\r\n")[2] + b"\xff\r\n"
    )


@pytest.mark.parametrize("length", range(MAX_LINE - 3, MAX_LINE + 3))
def test_a_line_end_at_the_edge_of_what_is_looked_at_together(length: int) -> None:
    data = b"\xff" * length
    part = b"Content-Type: image/x\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + data + b"\r\n"
    out = convert(multipart("mixed", part, TEXT))
    image, text = parsed(out).iter_parts()
    assert image.get_payload(decode=True) == data
    assert text.get_content() == "Grüße aus Köln"


def test_messages_in_messages() -> None:
    forwarded = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + head() + TEXT
    out = convert(multipart("mixed", forwarded))
    assert out.isascii()
    (part,) = parsed(out).iter_parts()
    assert part["content-transfer-encoding"] == "7bit"
    assert part.get_content().get_content() == "Grüße aus Köln"


def test_row_17_what_is_signed_is_not_changed() -> None:
    signature = b"Content-Type: application/pgp-signature\r\n\r\nxx\r\n"
    for kind in ("signed; micalg=x", 'signed; protocol="p"'):
        with pytest.raises(CannotConvert, match="signed"):
            convert(multipart(kind, TEXT, signature))
    nested = b"Content-Type: multipart/mixed; boundary=i\r\n\r\n--i\r\n" + TEXT + b"--i--\r\n"
    with pytest.raises(CannotConvert, match="signed"):
        convert(multipart("signed", nested, signature))
    with pytest.raises(CannotConvert, match="signed"):
        convert(multipart("signed", b"Content-Transfer-Encoding: binary\r\n\r\nx\r\n", signature))


def test_a_signed_part_of_seven_bits_passes_as_it_is() -> None:
    signed = (
        b"Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\nContent-Type: text/plain\r\n\r\nx\r\n"
        b"--s\r\nContent-Type: application/pgp-signature\r\n\r\nyy\r\n--s--\r\n"
    )
    out = convert(multipart("mixed", signed, TEXT))
    assert signed in out
    assert out.isascii()


@pytest.mark.parametrize(
    "content",
    [
        "Subject: Grüße\r\n\r\nx\r\n".encode(),
        head("Content-Type: multipart/mixed") + b"\r\nx\r\n",
        head("Content-Type: image/x", "Content-Transfer-Encoding: base64") + b"\r\n\xff\r\n",
        head("Content-Type: message/partial", "Content-Transfer-Encoding: 8bit") + b"\r\n\xff\r\n",
        multipart("mixed", TEXT, end=b"\xff\r\n"),
        head("X: " + "x" * 300_000) + b"\r\n",
        b"X: y\r\n" * 60_000 + b"\r\n",
    ],
)
def test_what_cannot_be_converted(content: bytes) -> None:
    with pytest.raises(CannotConvert):
        convert(content)


def test_parts_in_parts_are_bounded() -> None:
    content = head("Content-Type: multipart/mixed; boundary=b0") + b"\r\n"
    for depth in range(1, 100):
        content += b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (depth - 1, depth)
    with pytest.raises(CannotConvert):
        convert(content)


@given(
    st.lists(st.sampled_from([TEXT, b"\r\nplain\r\n", b"Content-Type: image/x\r\n\r\n\xff\r\n\xfe\r\n", b"\r\n"])),
    st.data(),
)
def test_no_split_makes_a_difference(parts: list[bytes], data: st.DataObject) -> None:
    content = multipart("mixed", *parts, end=b"--=_b\r\nend\r\n")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    assert convert(content, *cuts) == convert(content)
    assert convert(content, *range(len(content))) == convert(content)


@given(st.binary(max_size=400))
def test_whatever_comes_in_seven_bits_come_out(content: bytes) -> None:
    with contextlib.suppress(CannotConvert):
        assert convert(b"Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n" + content).isascii()
