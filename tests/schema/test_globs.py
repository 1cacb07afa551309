"""Globs match what they say, in linear time."""

from time import process_time

import pytest

from handrail.schema.globs import escape, glob_matches, literal, path_matches


def test_globs_mean_what_they_say() -> None:
    for glob, text, wanted in (
        ("a*b*c", "a1b2c", True), ("a*b*c", "a1c2b", False), ("*", "", True), ("?", "", False), ("a**b", "a/b", True),
        ("[ab]x", "bx", True), ("[!ab]x", "bx", False), ("[^ab]x", "cx", True), ("[a-c]", "b", True),
        ("[a-]", "-", True),
        ("[*]", "*", True), ("[*]", "x", False), ("[", "[", True), ("a.c", "abc", False), ("[a--]", "a", None),
        ("*.py", "x.py\n", False), ("line*", "line\nbreak", True), ("[&&~~||]", "&", True),
    ):  # fmt: skip
        if wanted is None:
            with pytest.raises(ValueError, match="backwards"):
                glob_matches(glob, text)
        else:
            assert glob_matches(glob, text) is wanted, (glob, text)
    for glob, path, wanted in (
        ("./src/**", "src", True), ("./src/**", "src/a/b", True), ("./src/**", "srcs", False),
        ("./src/*", "src/a/b", False),
        ("**/x.py", "x.py", True), ("**/x.py", "a/b/x.py", True), ("src/**/t.py", "src/t.py", True),
        ("a[!b]c", "a/c", False),
        ("a?c", "a/c", False), ("a[+-9]c", "a/c", False), ("/etc/*", "../etc/passwd", True),
        ("src/", "src/deep/file", True),
        ("../x", "/w/../x", True), ("./a", ".//a/.", True), ("*", "..", False), ("src/../lib/*", "lib/a", True),
    ):  # fmt: skip
        assert path_matches(glob, path, "/w") is wanted, (glob, path)
    assert path_matches("./s/**", "s/k", "/odd [dir]/w*")
    assert not path_matches("./s/**", "/odd d/wx/s/k", "/odd [dir]/w*")
    for odd in ("a*b", "[x]", "?", "[[]", "]", "plain"):
        assert literal(escape(odd)) == odd
        assert glob_matches(escape(odd), odd)


def test_a_glob_takes_no_longer_than_its_text_is_long() -> None:
    began = process_time()
    assert not glob_matches("*a*a*a*a*a*a*b", "a" * 300_000)
    assert process_time() - began < 10
