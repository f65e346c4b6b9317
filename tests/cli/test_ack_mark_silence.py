"""driftwatch ack, mark and silence, as they are typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from command_cases import Run, incident

from driftwatch.store.store import Store
from tests.outbox import latest_actions


def test_acking(run: Run, fill: Callable[..., Path]) -> None:
    path = fill(incident("a"))
    code, out, _ = run("ack", "aa", "--by", "Ana")
    assert code == 0
    assert re.fullmatch(
        r"a{12} acknowledged by Ana at \d\d:\d\d UTC, until it resolves: "
        r"BatchLimitBinding gpu-a:8000; no receiver has its page\n",
        out,
    )
    code, out, _ = run("ack", "aa", "--by", "Bob")
    assert code == 0
    assert "was already acknowledged by Ana" in out
    with Store.open(path) as store:
        assert store.incident("a").acknowledged_by == "Ana"
    assert run("incidents")[1].splitlines()[1].split("\t")[1::5] == ["acknowledged", "Ana"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zz",), "is not the id of an incident"),
        (("ff",), "no incident"),
        (("a", "--by", " "), "--by"),
        (("b",), "has not fired yet"),
        (("c",), "it cannot be acknowledged any more\nhelp: driftwatch ack cccc"),
        (("a", "--undo"), "is not acknowledged"),
        (("a", "--useful", "--undo"), "give one of them"),
        (("b", "--useful"), "has not fired yet"),
        (("a", "--useful", "--comment", "x" * 501), "at most 500 characters"),
        (("a", "--useful", "--comment", "caf\udce9"), "--comment is not UTF-8 at its character 4"),
    ],
)
def test_what_cannot_be_acknowledged_or_marked(
    run: Run, fill: Callable[..., Path], arguments: tuple[str, ...], said: str
) -> None:
    path = fill(incident("a"), incident("b", "pending"), incident("c", "resolved"))
    code, out, err = run("ack", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    with Store.open(path) as store:
        assert [i.acknowledged_by for i in store.incidents()] == [None] * 3
        assert store.marks([name * 12 for name in "abc"]) == {}


def test_marking_a_page(
    run: Run, fill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "Bob")
    path = fill(incident("a"), incident("c", "resolved"))
    code, out, _ = run("ack", "c", "--not-useful", "--by", "Ana", "--comment", "a load\x1b test")
    assert code == 0
    assert re.fullmatch(
        r"c{12} marked not useful by Ana at \d\d:\d\d UTC: BatchLimitBinding gpu-c:8000\n", out
    )
    told = json.loads(run("incidents", "--all", "--json")[1])["incidents"]
    assert [one["mark"] and one["mark"]["mark"] for one in told] == [None, "not useful"]
    assert told[1]["mark"]["because"] == "a load\x1b test"
    told = json.loads(run("ack", "c", "--useful", "--json")[1])
    assert (told["incident"]["mark"]["mark"], told["incident"]["mark"]["by"]) == ("useful", "Bob")
    with Store.open(path) as store:
        kept = [(one.action, one.subject, one.by, one.via) for one in store.actions("c" * 12)]
    assert kept == [
        ("mark", "not useful", "Ana", "command line"),
        ("mark", "useful", "Bob", "command line"),
    ]


def test_silencing_listing_and_expiring(run: Run, fill: Callable[..., Path]) -> None:
    path = fill(incident("a"), incident("b", "resolved"))
    code, out, _ = run(
        "silence", "alert=BatchLimitBinding", "instance=~gpu-.*", "--for", "2h", "--by", "Ana",
        "--comment", "restart",
    )  # fmt: skip
    assert code == 0
    found = re.fullmatch(
        r"silence ([0-9a-f]{12}) until [0-9: -]+UTC: alert=BatchLimitBinding instance=~gpu-\.\*; "
        r"matches 1 open incident now\n",
        out,
    )
    assert found is not None
    id_ = found[1]
    code, out, _ = run("silence", "--list")
    row = out.rstrip("\n").split("\t")
    assert (code, row[0], row[3:]) == (
        0,
        id_,
        ["Ana", "alert=BatchLimitBinding instance=~gpu-.*", "restart"],
    )
    (listed,) = json.loads(run("silence", "--list", "--json")[1])["silences"]
    assert f"{listed['until'][:19]}Z" == row[2]
    lasts = datetime.fromisoformat(listed["until"]) - datetime.fromisoformat(listed["created_at"])
    assert lasts == timedelta(hours=2)
    assert run("silence", "--expire", id_[:5], "--by", "Bob")[:2] == (0, f"silence {id_} ended\n")
    with Store.open(path) as store:
        assert [(one.action, one.by, one.subject) for one in latest_actions(store, 5)] == [
            ("end silence", "Bob", id_),
            ("silence", "Ana", id_),
        ]
    code, out, err = run("silence", "--list")
    assert (code, out) == (0, "")
    assert "no silence holds" in err
    assert run("silence", "--expire", id_)[0] == 2


@pytest.mark.parametrize(
    ("matcher", "said"),
    [
        ("alert=EngineStuk", "did you mean: driftwatch silence alert=EngineStuck severity=page"),
        ("pool=rag8b", "silence pool=rag-8b severity=page --for"),
        ("server=gpu-b:8000", "silence instance=gpu-a:8000 severity=page --for"),
        ("pol:rag-8b", "silence pool=rag-8b severity=page --for"),
        ("rag-8b", "silence pool=rag-8b severity=page --for"),
        ("pool=x", "no pool is called x; known: pa, rag-8b"),
        ("severity=critical", "silence severity=page severity=page"),
        ("alert=EngineStuck", None),
        ("alert=OfAnEarlierRule", None),
        ("instance=gpu-a:8000", None),
        ("pool=~not-there-yet", None),
    ],
)
def test_a_name_that_nothing_has_is_refused(
    run: Run, fill: Callable[..., Path], matcher: str, said: str | None
) -> None:
    path = fill(incident("a", alert="OfAnEarlierRule"))
    Path("driftwatch.yaml").write_text(f"{{database: {path}, pools: [{{name: rag-8b}}]}}\n")
    code, out, err = run("silence", matcher, "severity=page", "--for", "1h")
    with Store.open(path) as store:
        silences = store.silences()
    if said is None:
        assert (code, err, len(silences)) == (0, "", 1)
        assert "; matches " in out
    else:
        assert (code, silences) == (2, [])
        assert said in err.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a=b", "--list"), "one of them"),
        (("--list", "--for", "2h"), "--for belongs"),
        (("a=b",), "how long"),
        (("a=b", "--for", "400d"), "at most 30d"),
        (("a", "--for", "2h"), "is not a matcher"),
        (("a=~(", "--for", "2h"), "not a regular expression"),
        (("a=~.*", "--for", "2h"), "every incident"),
        (("--expire", "ab"), "no silence"),
    ],
)
def test_what_is_no_silence(
    run: Run, fill: Callable[..., Path], arguments: tuple[str, ...], said: str
) -> None:
    path = fill(incident("a"))
    code, out, err = run("silence", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    with Store.open(path) as store:
        assert store.silences() == []
