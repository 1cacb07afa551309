"""A Scrubber finds secrets in whatever way a text, a stream or data has them, and nothing else."""

import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from typing import Any
from urllib.parse import quote

import pytest

from handrail import Failure, HandrailError, Image, Success
from handrail.contract.truncated import Truncated
from handrail.scrub import Scrubber

TOKEN = "sk-live-5f3a/9+c"
HARD = 'p"ä\\ss\nwörd %&'


@pytest.mark.parametrize("secret", [TOKEN, HARD, "1234", "ключ", "𝔰𝔢𝔠𝔯𝔢𝔱!"])
@pytest.mark.parametrize(
    "write",
    [
        str,
        json.dumps,
        lambda value: json.dumps(json.dumps({"a": value})),
        lambda value: json.dumps(value, ensure_ascii=False),
        repr,
        quote,
        lambda value: value.replace("\n", "\r\n"),
    ],
)
def test_a_secret_is_found_as_json_python_urls_and_terminals_write_it(secret: str, write: Any) -> None:
    written = write(secret)
    cleaned = Scrubber([secret]).text(f"before {written} after {written}")
    assert cleaned.count("[secret]") == 2
    assert cleaned.startswith("before ")
    assert written not in cleaned
    assert Scrubber([secret]).text("before after") == "before after"


@pytest.mark.parametrize("secret", [TOKEN, HARD, "1234", "a much longer secret, of more than one line of base64" * 4])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode, encodebytes])
@pytest.mark.parametrize("offset", range(4))
def test_a_secret_is_found_in_base64_at_every_offset_and_over_lines(secret: str, encode: Any, offset: int) -> None:
    whole = b"<" * offset + secret.encode() + b">" * 90
    text = encode(whole).decode()
    for written in (text, json.dumps(text)):
        cleaned = Scrubber([secret]).text(f"x {written} y")
        assert cleaned.count("[secret]") == 1
        left = cleaned.replace("[secret]", "").replace("\\n", "").strip('xy "\n').replace("\n", "")
        assert len(left) <= len(encode(b"<" * offset + b">" * 90)) + 4
    other = encode(whole.replace(secret.encode(), b"!" * len(secret.encode()))).decode()
    assert Scrubber([secret]).text(other) == other  # control


@pytest.mark.parametrize("text", [f"one {TOKEN} two", b64encode(b"ab" + TOKEN.encode() + b"cd").decode() + " two"])
def test_a_secret_that_is_split_anywhere_is_found(text: str) -> None:
    scrubber = Scrubber([TOKEN])
    whole = scrubber.text(text)
    assert "[secret]" in whole
    for first in range(len(text)):
        for second in range(first, len(text)):
            stream, data = scrubber.stream(), scrubber.byte_stream()
            pieces = text[:first], text[first:second], text[second:]
            shown = "".join([*map(stream.add, pieces), stream.end()])
            assert shown.count("[secret]") == 1
            assert len(shown) - len(whole) in (0, 1)  # a character of base64 beside it, that came before
            assert b"".join([*(data.add(piece.encode()) for piece in pieces), data.end()]).decode() == shown
    stream = scrubber.stream()
    letters = "".join([*map(stream.add, text), stream.end()])
    assert letters.count("[secret]") == 1


def test_a_stream_keeps_back_only_what_may_be_a_secret() -> None:
    stream = Scrubber([TOKEN]).stream()
    assert stream.add("Password: ") == "Password: "
    assert stream.add("ask sk-l") == "ask "
    assert stream.add("ost\n") == "sk-lost\n"
    assert stream.add("sk-live") == ""
    assert stream.end() == "sk-live"


def test_a_stream_of_nothing_but_a_secret_keeps_back_little() -> None:
    stream = Scrubber(["aaaa"]).stream()
    held = 0
    for _ in range(40):
        shown = stream.add("a" * 10_000)
        held = max(held, len(stream._held))
        assert set(shown) <= set("[secret]")
    assert held <= 80_000
    assert set(stream.end()) <= set("[secret]")


def test_secrets_that_overlap_leave_nothing_of_either() -> None:
    scrubber = Scrubber(["abcdef", "defghi", "abcd", "iiii"])
    assert scrubber.text("xabcdefghiy") == "x[secret]y"
    assert scrubber.text("abcdabcd") == "[secret][secret]"
    assert scrubber.text("iiiiiii") == "[secret]"
    stream = scrubber.stream()
    assert stream.add("xabcdef") + stream.add("ghiy") == "x[secret]y"


def test_data_is_scrubbed_in_keys_and_depth_and_stays_the_same_object_without_secrets() -> None:
    scrubber = Scrubber([TOKEN, "123456"])
    clean: dict[str, Any] = {"a": [1, 2.5, True, None, {"b": "text"}], "c": ("x",), "d": Image(TOKEN.encode())}
    assert scrubber.data(clean) is clean
    found = scrubber.data({TOKEN: [TOKEN, {"n": 123456, "t": (f"a{TOKEN}",)}], "ok": b"x" + TOKEN.encode()})
    assert found == {"[secret]": ["[secret]", {"n": "[secret]", "t": ["a[secret]"]}], "ok": b"x[secret]"}
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert scrubber.data({"deep": deep}) == {"text": "nested too deeply to be scrubbed, and left out"}


def test_results_are_scrubbed_in_every_field() -> None:
    scrubber = Scrubber([TOKEN])
    failure = Failure(
        "invalid_args", TOKEN, field=TOKEN, expected=TOKEN, data={"x": TOKEN}, warnings=(TOKEN,), retryable=True
    )
    assert TOKEN not in repr(scrubber.result(failure))
    assert scrubber.result(failure).retryable
    assert scrubber.result(Success({"x": TOKEN}, (TOKEN,))) == Success({"x": "[secret]"}, ("[secret]",))


def test_a_secret_that_the_cut_of_a_text_went_through_is_found() -> None:
    for at in range(4, len(TOKEN) - 4):
        cut = Truncated(f"begin {TOKEN[:at]}", f"{TOKEN[at:]} end", 10, 100)
        cleaned = Scrubber([TOKEN]).text(cut)
        assert isinstance(cleaned, Truncated)
        assert (cleaned.head, cleaned.tail) == ("begin [secret]", "[secret] end")
        assert (cleaned.left_out, cleaned.total) == (10, 100)
    plain = Truncated("begin", "end", 10, 100)
    assert Scrubber([TOKEN]).text(plain) is plain


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["abc"], "secret 1 has 3 characters"),
        ([TOKEN, " ab\n "], "secret 2 has 2 characters"),
        ([""], "secret 1 has 0"),
        ([12345], "secret 1 is"),
        ([None], "secret 1 is"),
        (TOKEN, "secrets is a str"),
        ({"a": TOKEN}, "secrets is a dict"),
        (5, "secrets is a int"),
        (["secret"], "part of"),
    ],
)
def test_what_cannot_be_a_secret_is_refused_without_naming_it(given: Any, said: str) -> None:
    with pytest.raises(HandrailError, match=said) as caught:
        Scrubber(given)
    assert TOKEN not in str(caught.value)
    assert "12345" not in str(caught.value)


def test_white_space_around_a_secret_is_not_part_of_it() -> None:
    scrubber = Scrubber([f" {TOKEN}\n"])
    assert scrubber.text(f"a {TOKEN} b") == "a [secret] b"
    assert TOKEN not in repr(scrubber)
