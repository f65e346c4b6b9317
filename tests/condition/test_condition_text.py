from __future__ import annotations

import sys

import pytest

from driftwatch.condition import parse_condition
from driftwatch.condition_text import MAX_CHARACTERS, MAX_DEPTH, MAX_TERMS
from driftwatch.errors import ConditionError
from driftwatch.evidence import BY_NAME


def refused(text: str) -> ConditionError:
    with pytest.raises(ConditionError) as caught:
        parse_condition(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "length"),
    [
        ("scrapes > 1 garbage", "unknown-column", 1, 13, 7),
        ("scrapes > 1 scrapes", "syntax", 1, 13, 7),
        ("scrapes > 1 AS x", "not-allowed", 1, 13, 2),
        ("scrapes > 1 (restarted)", "syntax", 1, 14, 9),
        ("scrapes > 1_000", "unknown-column", 1, 12, 4),
        ("scrapes > 1; scrapes > 2", "not-allowed", 1, 12, 1),
        ("scrapes > 1;", "not-allowed", 1, 12, 1),
        ("count(*) > 1", "not-allowed", 1, 1, 5),
        ("read_csv('http://host/x') > 1", "not-allowed", 1, 1, 8),
        ("cast(scrapes AS int) > 1", "not-allowed", 1, 1, 4),
        ("scrapes::int > 1", "not-allowed", 1, 8, 2),
        ("CASE WHEN restarted THEN 1 END > 0", "not-allowed", 1, 1, 4),
        ("scrapes IN (SELECT 1)", "not-allowed", 1, 13, 6),
        ("SELECT 1", "not-allowed", 1, 1, 6),
        ("EXISTS (SELECT 1)", "not-allowed", 1, 1, 6),
        ("scrapes > 1 OVER (x)", "not-allowed", 1, 13, 4),
        ("binding_limit LIKE 'k%'", "not-allowed", 1, 15, 4),
        ("binding_limit || 'x' = 'y'", "not-allowed", 1, 15, 2),
        ("* > 1", "syntax", 1, 1, 1),
        ('"scrapes" > 1', "not-allowed", 1, 1, 9),
        ("`scrapes` > 1", "not-allowed", 1, 1, 1),
        ("evidence.scrapes > 1", "not-allowed", 1, 9, 1),
        ("scrapes[0] > 1", "not-allowed", 1, 8, 1),
        ("? > scrapes", "not-allowed", 1, 1, 1),
        ("@scrapes > 1", "not-allowed", 1, 1, 1),
        ("{{ scrapes }} > 1", "not-allowed", 1, 1, 1),
        ("scrapes % 2 = 1", "not-allowed", 1, 9, 1),
        ("scrapes == 1", "not-allowed", 1, 9, 2),
        ("!restarted", "not-allowed", 1, 1, 1),
        ("scrapes <=> 1", "not-allowed", 1, 9, 3),
        ("scrapes ISNULL", "not-allowed", 1, 9, 6),
        ("scrapes IS TRUE", "not-allowed", 1, 9, 2),
        ("scrapes = NULL", "not-allowed", 1, 11, 4),
        ("scrapes > 1 -- note", "not-allowed", 1, 13, 2),
        ("scrapes /* x */ > 1", "not-allowed", 1, 9, 2),
        ("scrapes > DATE '2026-01-01'", "not-allowed", 1, 11, 4),
        ("scrapes > .5", "not-allowed", 1, 11, 1),
        ("", "empty", 1, 1, 1),
        (" \n ", "empty", 1, 1, 1),
        ("scrapes >", "syntax", 1, 10, 1),
        ("scrapes > > 1", "syntax", 1, 1, 13),
        ("scrapes AND", "syntax", 1, 12, 1),
        ("(scrapes > 1", "syntax", 1, 13, 1),
        ("scrapes > 1)", "syntax", 1, 12, 1),
        ("()", "syntax", 1, 1, 1),
        ("scrapes IN ()", "syntax", 1, 1, 7),
        ("scrapes IN 1", "syntax", 1, 1, 12),
        ("scrapes IN (scrapes)", "not-allowed", 1, 13, 7),
        ("scrapes IN (1 + 1)", "not-allowed", 1, 13, 5),
        ("(scrapes, 1) = (1, 2)", "syntax", 1, 2, 10),
        ("scrapes > 1, scrapes > 2", "syntax", 1, 12, 1),
        ("scrapes > 'abc", "syntax", 1, 11, 1),
        ("1 < scrapes < 2", "syntax", 1, 1, 11),
        ("scrapes IS NULL IS NULL", "syntax", 1, 1, 7),
        ("scrapes BETWEEN (1 AND 2)", "syntax", 1, 25, 1),
        ("scrapes > 1e400", "number", 1, 11, 5),
        ("scrapes > 1e", "number", 1, 11, 2),
        ("scrapes > 1 AND\n  scrapess > 2", "unknown-column", 2, 3, 8),
        ("restarted > 1", "type", 1, 1, 13),
        ("restarted + 1 > 1", "type", 1, 1, 9),
        ("binding_limit = 3", "type", 1, 1, 17),
        ("binding_limit < 'x'", "type", 1, 1, 19),
        ("scrapes = 'x'", "type", 1, 1, 13),
        ("scrapes IN (1, 'x')", "type", 1, 16, 3),
        ("scrapes BETWEEN 1 AND 'x'", "type", 1, 23, 3),
        ("scrapes", "type", 1, 1, 7),
        ("1", "type", 1, 1, 1),
        ("NOT scrapes", "type", 1, 5, 7),
        ("-restarted", "type", 1, 2, 9),
        ("scrapes > 1\0", "unknown-column", 1, 12, 1),
        ("scrapes \u202e> 1", "unknown-column", 1, 9, 1),
        ("scrapes ≥ 1", "unknown-column", 1, 9, 1),
        ("scrapes > ٥", "unknown-column", 1, 11, 1),
        ("scrapes > NaN", "unknown-column", 1, 11, 3),
    ],
)
def test_what_is_no_predicate_is_refused_where_it_stands(
    text: str, code: str, line: int, column: int, length: int
) -> None:
    error = refused(text)
    assert (error.code, error.line, error.column, error.length) == (code, line, column, length)
    assert error.message


def test_a_wrong_name_gets_the_nearest_column() -> None:
    error = refused("tokens_per_second_per_gpu_rato <= 0.85")
    assert error.message == "tokens_per_second_per_gpu_rato"
    assert error.help_text == "did you mean tokens_per_second_per_gpu_ratio?"
    assert refused("WAITING_REQUESTS > 1").help_text == "did you mean waiting_requests?"
    assert refused("requests_wait > 3").help_text == "write requests_wait, or NOT requests_wait"
    assert refused("zzzzzz > 1").help_text == "driftwatch evidence lists the columns"


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_evidence_column_can_be_read(name: str) -> None:
    assert parse_condition(f"{name} IS NOT NULL").columns == {name}


def test_a_column_may_be_a_keyword_elsewhere() -> None:
    known = {"left": BY_NAME["scrapes"], "select": BY_NAME["scrapes"]}
    assert parse_condition("left > 1 AND select > 2", columns=known).columns == {"left", "select"}


def test_limits_of_size() -> None:
    fits = "scrapes > 1".ljust(MAX_CHARACTERS)
    assert parse_condition(fits).columns == {"scrapes"}
    assert refused(fits + " ").code == "too-long"
    many = "1" + "+1" * (MAX_TERMS - 2)
    assert parse_condition(f"{many} < scrapes").columns == {"scrapes"}
    error = refused(f"{many}+1 < scrapes")
    assert (error.code, error.column) == ("too-many-terms", len(many) + 6)
    deep = "(" * MAX_DEPTH + "restarted" + ")" * MAX_DEPTH
    assert parse_condition(deep).columns == {"restarted"}
    assert refused(f"({deep})").code == "too-deep"
    assert refused("NOT " * 60 + "restarted").code == "too-deep"
    assert refused("- " * 200 + "1 > scrapes").code == "too-deep"


def test_nothing_is_opened_while_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    parse_condition("scrapes > 1")  # imports are done

    def note(event: str, args: tuple[object, ...]) -> None:
        if watching and event in ("open", "socket.connect", "subprocess.Popen", "os.system"):
            opened.append((event, args))

    watching = True
    sys.addaudithook(note)  # cannot be taken off again, hence the flag
    try:
        for text in (
            "scrapes > (SELECT a FROM read_csv('http://127.0.0.1:9/x'))",
            "scrapes IN (SELECT 1 FROM read_parquet('/etc/passwd'))",
            "SELECT * FROM '/etc/passwd'",
            "scrapes > 1 AND binding_limit = '/etc/passwd'",
        ):
            try:
                parse_condition(text)
            except ConditionError:
                continue
    finally:
        watching = False
    assert opened == []
