"""What pydantic reads in a text beyond what the schema shows: each kind is listed here, and decided."""

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, Flag, IntFlag
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AwareDatetime,
    Base64Bytes,
    Base64Str,
    Base64UrlBytes,
    BaseModel,
    ByteSize,
    DirectoryPath,
    HttpUrl,
    ImportString,
    IPvAnyAddress,
    Json,
    PastDate,
    SecretStr,
)

from handrail import Session, Tool, tool
from handrail.contract.errors import BadSchema

pytestmark = pytest.mark.anyio


class Access(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    A = 1
    B = 2


class Size(Enum):
    SMALL = "s"
    LARGE = 9


class Meeting(BaseModel):
    on: dt.date | None = None
    at: list[dt.datetime] = []


class Sizes(BaseModel):
    by: dict[ByteSize, int] = {}


DAY = dt.date(2024, 1, 2)
MIDNIGHT, TEN = dt.datetime.fromisoformat("2024-01-02"), dt.datetime.fromisoformat("2024-01-02T10:00")
TEN_UTC = TEN.replace(tzinfo=dt.UTC)
IDENTITY = UUID("12345678-1234-5678-1234-567812345678")
DIGITS = [
    "2024",
    "20240102",
    "1700000000",
    "1700000000000",
    "12.5",
    "-5",
    "+5",
    "-0",
    " 7 ",
    "1e3",
    "",
    1700000000,
    5.5,
]
TABLE: list[tuple[Any, list[tuple[Any, Any]], list[Any]]] = [
    # type, what is accepted and what it becomes, what is refused
    (dt.date, [("2024-01-02", DAY), ("2024-01-02T00:00:00Z", DAY)], [*DIGITS, "2024-01", "02.01.2024"]),
    (PastDate, [("2024-01-02", DAY)], DIGITS),
    (dt.datetime, [
        ("2024-01-02T10:00:00Z", TEN_UTC), ("2024-01-02", MIDNIGHT),
        ("2024-01-02 10:00", TEN), ("2024-01-02T10:00", TEN),
    ], DIGITS),
    (AwareDatetime, [("2024-01-02T10:00:00Z", TEN_UTC)], [*DIGITS, "2024-01-02T10:00"]),
    (dt.time, [("10:00", dt.time(10)), ("10:00:30", dt.time(10, 0, 30))], [*DIGITS, "1000"]),
    (dt.timedelta, [("P1D", dt.timedelta(1)), ("1 day", dt.timedelta(1)), ("01:30", dt.timedelta(hours=1.5))], DIGITS),
    (dt.date | None, [("2024-01-02", DAY), (None, None)], ["2024", "1700000000"]),
    (dt.datetime | dt.date, [("2024-01-02", MIDNIGHT)], ["2024", "1700000000"]),
    (dt.date | str, [("2024", "2024")], []),  # a text is a text where text is taken
    (dict[dt.date, int], [({"2024-01-02": 1}, {DAY: 1})], [{"2024": 1}, {"1700000000": 1}, {"2024-01-02T00:00": 1}]),
    (Meeting, [({"on": "2024-01-02"}, Meeting(on=DAY))], [{"on": "2024"}, {"at": ["2024-01-02", "1700000000"]}]),
    (ByteSize, [("5 KB", 5000), ("1.5 MiB", 1572864), ("10", 10), (10, 10), ("7b", 7)],
     ["1,000", "1_000", "12.5", "1.5b", "5 apples", "1,000 KB", "2024-01-02", "3 5", "9007199254740993 KB", 1.5]),
    (Decimal, [("1.10", Decimal("1.10")), (0.1, Decimal("0.1")), ("1e3", Decimal(1000)), ("5.000", Decimal(5)),
               (9007199254740993, Decimal(9007199254740993)), ("1234567890123456.1", Decimal("1234567890123456.1"))],
     ["1,000", "NaN", "Infinity", "5 EUR", "", "0x10"]),
    (float, [(1.5, 1.5), ("1.5", 1.5), (2**53, 2.0**53), (2**60, 2.0**60)],
     [2**53 + 1, "9007199254740993", 10**400, True]),
    (list[float], [([1, 2.5], [1.0, 2.5])], [[1.0, 2**53 + 1]]),
    (int, [(2**70, 2**70), ("30.0", 30)], ["5.000", "30.5", 2.0**60, True, "1_000"]),
    (Fraction, [("1/3", Fraction(1, 3)), ("0.1", Fraction(1, 10)), (0.1, Fraction(1, 10)), (3, Fraction(3))],
     ["1,5", "x"]),
    (complex, [("3+4j", 3 + 4j), ("1.5", 1.5 + 0j)], ["nan", "Infinity", "1+infj", "x"]),
    (Path, [("a/b", Path("a/b")), ("2024", Path("2024"))], ["", "  ", "http://x/y", "a\0b"]),
    (DirectoryPath, [("/", Path("/"))], ["", "http://x"]),
    (IPv4Address, [("1.2.3.4", IPv4Address("1.2.3.4"))], ["16909060", 16909060, "1.2.3", "01.02.03.04", "1.2.3.4/8"]),
    (IPv6Address, [("::1", IPv6Address("::1"))], ["1", 1]),
    (IPvAnyAddress, [("::1", IPv6Address("::1"))], ["1", 1, "16909060"]),
    (IPv4Network, [("1.2.3.0/24", IPv4Network("1.2.3.0/24")), ("1.2.3.4", IPv4Network("1.2.3.4/32"))],
     ["1.2.3.4/24", "1", 1]),
    (IPv4Interface, [("1.2.3.4/24", IPv4Interface("1.2.3.4/24"))], ["1", 1]),
    (UUID, [("12345678-1234-5678-1234-567812345678", IDENTITY), ("12345678123456781234567812345678", IDENTITY),
            ("{12345678-1234-5678-1234-567812345678}", IDENTITY)], ["1", 1, "x"]),
    (Access, [(1, Access.READ), ("2", Access.WRITE)], [3, 0, "READ", "1|2", True]),
    (Bits, [(1, Bits.A)], [3, 4, "A"]),
    (Size, [("s", Size.SMALL), (9, Size.LARGE), ("S", Size.SMALL)], ["SMALL", 9.5]),
    (HttpUrl, [("http://x/", HttpUrl("http://x/"))], ["x", "ftp://x", "5"]),
    (re.Pattern[str], [("a+", re.compile("a+"))], ["("]),
    (bytes, [("é", "é".encode()), (5.5, b"5.5")], [None]),
    (SecretStr, [("x", SecretStr("x"))], [None]),
    (Base64Bytes, [("aGk=", b"hi"), ("aG\nk=", b"hi")], ["a,Gk=", "data:;base64,aGk=", "٣", "aGk"]),
    (Base64Str, [("aGk=", "hi")], ["٣", "a-Gk="]),
    (Base64UrlBytes, [("_-8=", b"\xff\xef")], ["+/8=", "a,Gk="]),
    (Json, [('{"a": 1}', {"a": 1})], ["NaN", "[Infinity]", '{"a": 1, "a": 2}', "x", ""]),
    (Json[dt.date], [('"2024-01-02"', DAY)], ['"2024"', "2024", '"1704067200"', "1704067200"]),
    (Json[dt.datetime], [('"2024-01-02T10:00"', TEN)], ['"2024"', "2024"]),
    (Json[ByteSize], [('"5 KB"', 5000), ("10", 10)], ['"1,000"']),
    (Json[Decimal], [('"1.10"', Decimal("1.10")), ("5", Decimal(5))], ['"1,000"', '"NaN"']),
    (Json[bool], [("true", True)], ['"yes"', '"t"', "1"]),
    (Json[list[int]], [("[1, 2]", [1, 2])], ['["1", 2, 3]', "[1, 2.5]", "[true]"]),
    (Json[Meeting], [('{"on": "2024-01-02"}', Meeting(on=DAY))], ['{"on": "2024"}', '{"on": null, "zz": 1}', "[]"]),
    (list[Json[dict[ByteSize, int]]], [(['{"5 KB": 1}'], [{5000: 1}])], [['{"1,000": 1}']]),
    (dict[ByteSize, int], [({"5 KB": 1, "7": 2}, {5000: 1, 7: 2})], [{"1,000": 1}, {"1 000 000": 1}]),
    (Sizes, [({"by": {"5 KB": 1}}, Sizes(by={ByteSize(5000): 1}))], [{"by": {"1,000": 1}}]),
    (dict[dt.date | None, int], [({"2024-01-02": 1}, {DAY: 1})], [{"2024": 1}, {"1700000000": 1}]),
    (dict[Annotated[int, AfterValidator(abs)], str], [({"1": "a"}, {1: "a"})], [{" 1": "a"}, {"01": "a"}]),
    (set[int], [([1, 2], {1, 2})], [[1, 1]]),
    (tuple[int, str], [([1, "a"], (1, "a"))], [[1], [1, "a", 2]]),
    (dict[int, str], [({"1": "a"}, {1: "a"})], [{" 1": "a"}, {"01": "a"}, {"1.0": "a"}]),
    (dict[float, int], [({"1.5": 1, "0": 2}, {1.5: 1, 0.0: 2})],
     [{"1": 1, "1.0": 2}, {"nan": 1}, {"1_0": 1}, {" 1": 1}]),
    (dict[Decimal, int], [({"1.5": 1}, {Decimal("1.5"): 1})], [{"1.50": 1}, {"1_0": 1}]),
    (dict[bool, int], [({"true": 1}, {True: 1})], [{"yes": 1}, {"1": 1}]),
]  # fmt: skip


def taking(kind: Any) -> tuple[Tool, list[Any]]:
    given: list[Any] = []

    def take(value: Any) -> None:
        given.append(value)

    take.__annotations__ = {"value": kind, "return": None}
    return tool(take), given


ACCEPTED = [(kind, sent, becomes) for kind, accepted, _ in TABLE for sent, becomes in accepted]
REFUSED = [(kind, sent) for kind, _, refused in TABLE for sent in refused]


@pytest.mark.parametrize(("kind", "sent", "becomes"), ACCEPTED, ids=lambda item: str(item)[:60])
async def test_a_text_with_one_meaning_becomes_its_type(kind: Any, sent: Any, becomes: Any) -> None:
    take, given = taking(kind)
    async with Session([take]) as session:
        result = await session.call("take", {"value": sent})
    assert result.ok, result
    assert repr(given) == repr([becomes]) or given == [becomes]


@pytest.mark.parametrize(("kind", "sent"), REFUSED, ids=lambda item: str(item)[:60])
async def test_a_text_that_would_be_read_in_another_sense_bounces(kind: Any, sent: Any) -> None:
    take, given = taking(kind)
    async with Session([take]) as session:
        result = await session.call("take", {"value": sent})
    assert not result.ok
    assert result.kind == "invalid_args"
    assert given == []


def test_a_type_that_imports_what_the_model_names_is_refused_at_definition() -> None:
    class Holder(BaseModel):
        loaded: ImportString[Callable[..., Any]]

    for kind in (ImportString, Holder, list[ImportString]):  # type: ignore[type-arg]
        with pytest.raises(BadSchema, match="'value'"):
            taking(kind)


def test_a_size_beside_a_text_is_refused_at_definition() -> None:
    class Holder(BaseModel):
        size: list[ByteSize | dt.date]

    taking(ByteSize | None | list[str])  # the control
    for kind in (ByteSize | str, dict[ByteSize | str, int], Holder):
        with pytest.raises(BadSchema, match=r"'value'.* ByteSize"):
            taking(kind)


async def test_digits_pass_where_a_schema_from_outside_calls_them_a_date() -> None:
    given: list[Any] = []

    async def body(_: Any, arguments: Any) -> None:
        given.append(arguments["on"])

    schema = {"type": "object", "properties": {"on": {"type": "string", "format": "date"}}}
    async with Session([Tool("take", schema, body)]) as session:
        assert (await session.call("take", {"on": "2024"})).ok
    assert given == ["2024"]


LARGE = "99999999999999999.99"
EXACTLY: list[tuple[Any, str, Any]] = [
    (Decimal, LARGE, Decimal(LARGE)),
    (Decimal, "12345678901234567890.5", Decimal("12345678901234567890.5")),
    (Decimal, "0.30000000000000004441", Decimal("0.30000000000000004441")),
    (Decimal, "0.1000000000000000055", Decimal("0.1000000000000000055")),
    (Decimal, "1e400", None),
    (Decimal, "0.10", Decimal("0.1")),
    (Decimal | None, LARGE, Decimal(LARGE)),
    (list[Decimal], f"[{LARGE}, 1.5]", [Decimal(LARGE), Decimal("1.5")]),
    (list[Decimal], "[1.10, 1.1]", [Decimal("1.1"), Decimal("1.1")]),
    (list[Decimal], "[0.1000000000000000055, 0.1]", None),
    (dict[str, Decimal], f'{{"a": {LARGE}}}', {"a": Decimal(LARGE)}),
    (int | float, "9007199254740993.0", 9007199254740993),
    (int | float, "1.5", 1.5),
    (float, "0.30000000000000004441", 0.30000000000000004),
]


@pytest.mark.parametrize(("kind", "written", "becomes"), EXACTLY, ids=lambda item: str(item)[:60])
async def test_no_digit_is_lost_where_the_type_can_hold_it(kind: Any, written: str, becomes: Any) -> None:
    take, given = taking(kind)
    async with Session([take]) as session:
        result = await session.call("take", f'{{"value": {written}}}')
    assert given == ([] if becomes is None else [becomes])
    assert result.ok is (becomes is not None)
    assert result.ok or result.kind == "invalid_args"
