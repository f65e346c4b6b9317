from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.yaml_positions import (
    MAX_BYTES,
    Entries,
    Node,
    Place,
    Scalar,
    YamlFile,
    parse_yaml,
    plain,
    read_yaml,
)


def codes(text: str) -> list[tuple[str, int | None, int | None]]:
    return [(p.code, p.line, p.column) for p in parse_yaml(text, "f.yaml").problems]


def scalar(file: YamlFile, *keys: str) -> Scalar:
    node: Node | None = file.root
    for key in keys:
        assert isinstance(node, Entries)
        node = node.entries[key][1]
    assert isinstance(node, Scalar)
    return node


def test_values_and_places() -> None:
    text = "a: 1\nb:\n  - x: on\n    'y y': \"1\"\n  - [1.5, null, ~, true, -2, 0x10, 012]\nc: {}\n"
    file = parse_yaml(text, "f.yaml")
    assert file.problems == []
    assert plain(file.root) == {
        "a": 1,
        "b": [{"x": "on", "y y": "1"}, [1.5, None, None, True, -2, 16, 12]],
        "c": {},
    }
    assert isinstance(file.root, Entries)
    assert file.root.entries["c"][0] == Place(6, 1, 1)
    assert scalar(file, "a").place == Place(1, 4, 1)


@pytest.mark.parametrize("word", ["2026-11-18", "5m", "yes", "no", "off", "1:30", "=", "1.2.3"])
def test_a_word_stays_a_word(word: str) -> None:
    assert plain(parse_yaml(f"a: {word}", "f").root) == {"a": word}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", [("duplicate-key", 3, 1)]),
        ("a: {b: 1, 'b': 2}\n", [("duplicate-key", 1, 11)]),
        ("a:\n\tb: 1\n", [("yaml", 2, 1)]),
        ("a: &x 1\n", [("anchor", 1, 4)]),
        ("a: &x [1]\nb: *x\n", [("anchor", 1, 4), ("alias", 2, 4)]),
        ("<<: {a: 1}\n", [("anchor", 1, 1)]),
        ("a: !!python/object:os.system x\n", [("tag", 1, 4)]),
        ("a: !!python/object/apply:os.system [x]\n", [("tag", 1, 4)]),
        ("a: !mine {b: 1}\n", [("tag", 1, 4)]),
        ("a: 1\n---\nb: 2\n", [("documents", 2, 1)]),
        ("? [a]\n: 1\n", [("key", 1, 3)]),
        ("a: 'x\n", [("yaml", 1, 4)]),
        ("a: b: c\n", [("yaml", 1, 5)]),
        ("a: [1\n", [("yaml", 1, 4)]),
        ("a: \x07\n", [("yaml", 1, 4)]),
        ("a: @x\n", [("yaml", 1, 4)]),
    ],
)
def test_what_is_refused(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert codes(text) == expected


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_bounded(opening: str) -> None:
    found = codes(opening * 3000)
    assert [code for code, _, _ in found] in (["too-deep"], ["yaml"])
    assert codes("[" * 50 + "]" * 50) == []
    assert [code for code, _, _ in codes("[" * 51 + "]" * 51)] == ["too-deep"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"a: " + b"x" * (5 * MAX_BYTES))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nb: caf\xe9\n")
    expected = [
        (large, "too-large", None),
        (latin, "encoding", 2),
        (tmp_path / "none.yaml", "unreadable", None),
        (tmp_path, "unreadable", None),
    ]
    for path, code, line in expected:
        file = read_yaml(path)
        assert file.root is None
        assert [(p.path, p.code, p.line) for p in file.problems] == [(str(path), code, line)]


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes("\ufeffa: 1\r\nb: x y\r\n".encode())
    file = read_yaml(path)
    assert plain(file.root) == {"a": 1, "b": "x y"}
    assert scalar(file, "b").place == Place(2, 4, 3)
    assert file.lines[1] == "b: x y"


STYLES = {
    "plain": ("when: one two three four", (1, 15)),
    "single": ("when: 'one two three four'", (1, 16)),
    "double": ('when: "one two three four"', (1, 16)),
    "plain over lines": ("when: one\n    two\n    three\n  four", (3, 5)),
    "folded": ("when: >-\n  one two\n  three four", (3, 3)),
    "literal": ("when: |\n  one\n  two\n   three\n  four\n", (4, 4)),
    "folded with a note": ("when: > # note on three\n  one\n  two three\n  four", (3, 7)),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_place_inside_a_text_of_any_style(style: str) -> None:
    text, expected = STYLES[style]
    file = parse_yaml(text, "f.yaml")
    value = scalar(file, "when")
    assert isinstance(value.value, str)
    before = value.value[: value.value.index("three")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    place = file.inside(value, line, column, 5)
    assert (place.line, place.column) == expected
    assert file.lines[place.line - 1][place.column - 1 :][: place.length] == "three"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:-[]{}'\"#&*!|>%@`\n\t ,?0.~é\x00\x85", max_size=60))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    file = parse_yaml(text, "f.yaml")
    plain(file.root)
    for problem in file.problems:
        assert problem.line is not None
        assert 1 <= problem.line <= len(file.lines) + 1


def test_numbers_beyond_all_reason_stay_text() -> None:
    digits = "9" * 100_000
    assert plain(parse_yaml(f"a: {digits}", "f").root) == {"a": digits}
