"""driftwatch incidents, ack, silence and db, as they are typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driftwatch.cli.incidents import HEADER, short_row, state_word, target_text
from driftwatch.cli.main import main
from driftwatch.cli.output import lines, render
from driftwatch.model import Incident
from driftwatch.store import Store, TickRecord

START = datetime(2026, 3, 1, 2, 45, tzinfo=UTC)
Run = Callable[..., tuple[int, str, str]]


def incident(digit: str, state: str = "firing", **changes: object) -> Incident:
    made = Incident(
        id=digit * 12,
        key=f"CapBinds{{instance={digit}}}",
        rule="CapBinds",
        alert="BatchLimitBinding",
        severity="page",
        target={"instance": f"gpu-{digit}:8000", "engine": "0"},
        state=state,  # type: ignore[arg-type]
        started_at=START,
        last_true_at=START,
        firing_at=None if state == "pending" else START + timedelta(minutes=10),
        resolved_at=START + timedelta(minutes=71) if state == "resolved" else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def fill(tmp_path: Path) -> Callable[..., Path]:
    def with_these(*incidents: Incident, name: str = "driftwatch.db") -> Path:
        path = tmp_path / name
        with Store.open(path) as store:
            store.commit_tick(
                TickRecord(
                    incidents=incidents,
                    since=START,
                    until=START,
                )
            )
        return path

    return with_these


# incidents


def test_piped_it_is_whole_rows_between_tabs_open_ones_only(
    run: Run, fill: Callable[..., Path]
) -> None:
    long = "gpu-" + "x" * 200 + ":8000"
    fill(
        incident("a", "pending", inhibited_by="EngineStuck"),
        incident("b", target={"instance": long, "engine": "1"}, silenced_by="c0ffee"),
        incident("c", "resolved"),
    )
    code, out, err = run("incidents")
    assert (code, err) == (0, "")
    known = ["b" * 12, "silenced", "page", "2026-03-01T02:45:00Z"]
    assert [line.split("\t") for line in out.splitlines()] == [
        [*known, f"{long}/1", "BatchLimitBinding", "", "", "c0ffee", ""],
        [
            "a" * 12,
            "inhibited",
            *known[2:],
            "gpu-a:8000",
            "BatchLimitBinding",
            "",
            "",
            "",
            "EngineStuck",
        ],
    ]


def test_which_are_listed(run: Run, fill: Callable[..., Path]) -> None:
    now = datetime.now(UTC)
    old = incident("c", "resolved")
    new = incident("d", "resolved", started_at=now, resolved_at=now)
    fill(incident("a", "pending"), incident("b"), old, new)

    def listed(*arguments: str) -> str:
        code, out, _ = run("incidents", *arguments)
        assert code == 0
        return "".join(line[0] for line in out.splitlines())

    assert listed() == "ba"
    assert listed("--all") == "badc"
    assert listed("--state", "resolved") == "dc"
    assert listed("--state", "firing") == "b"
    assert listed("--since", "24h") == "bad"
    assert listed("--since", "2026-03-01T00:00Z") == "badc"
    assert listed("--since", "2026-03-01T03:56:01") == "bad"  # UTC where it does not say
    assert listed("--since", "2026-03-01T04:56:00+01:00") == "badc"
    assert listed("--all", "--limit", "2") == "ba"


def test_a_cut_list_says_so(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("a"), incident("b"))
    assert "--limit" in run("incidents", "--limit", "1")[2]
    assert run("incidents", "--limit", "2")[2] == ""
    assert json.loads(run("incidents", "--limit", "1", "--json")[1])["more"] is True


def test_nothing_open_is_said_on_stderr(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("c", "resolved"))
    code, out, err = run("incidents")
    assert (code, out) == (0, "")
    assert "no open incident" in err


def test_json(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("a", page={"event": "firing"}), incident("b", "resolved"))
    code, out, _ = run("incidents", "--all", "--json")
    told = json.loads(out)
    assert (code, told["schema_version"], told["more"]) == (0, 1, False)
    one, other = told["incidents"]
    assert one["id"] == "a" * 12
    assert one["started_at"] == "2026-03-01T02:45:00Z"
    assert one["resolved_at"] is None
    assert one["target"] == {"instance": "gpu-a:8000", "engine": "0"}
    assert one["page"] == {"event": "firing"}
    assert other["resolved_at"] == "2026-03-01T03:56:00Z"
    assert run("incidents", "--json", "--state", "pending")[1] == (
        '{"incidents": [], "more": false, "schema_version": 1}\n'
    )


def test_a_label_cannot_break_a_row_or_drive_the_terminal(
    run: Run, fill: Callable[..., Path]
) -> None:
    fill(incident("a", target={"instance": "x\ty\n\x1b[31mz\u202e", "engine": "0"}))
    _, out, _ = run("incidents")
    assert out.count("\n") == 1
    assert out.split("\t")[4] == r"x\ty\n\x1b[31mz\u202e"


def test_the_table_on_a_terminal() -> None:
    now = START + timedelta(hours=1)
    found = [
        incident("a"),
        incident("b", acknowledged_at=now, acknowledged_by="Ana"),
        incident("c", "resolved", severity="notice", started_at=START - timedelta(days=1)),
    ]
    assert render(HEADER, [short_row(i, now) for i in found], width=80) == [
        "ID        STATE     SEVERITY  SINCE UTC         TARGET      ALERT",
        "aaaaaaaa  firing    page      02:45             gpu-a:8000  BatchLimitBinding",
        "bbbbbbbb  acked     page      02:45             gpu-b:8000  BatchLimitBinding",
        "cccccccc  resolved  notice    2026-02-28 02:45  gpu-c:8000  BatchLimitBinding",
    ]


@pytest.mark.parametrize("mark", ["…", "..."])
def test_a_long_name_is_cut_to_80_columns(mark: str) -> None:
    now = START + timedelta(days=2)
    wide = incident("a", target={"instance": "h" * 70}, alert="A" * 70)
    table = render(
        HEADER, [short_row(wide, now), short_row(incident("b"), now)], width=80, mark=mark
    )
    assert max(len(line) for line in table) <= 80
    assert table[1].count(mark) == 2
    assert table[1].startswith("aaaaaaaa  firing")


def test_an_odd_output_encoding_loses_no_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert lines(("A",), [["ü×"]], [["ü×", "b"]]) == ["\\xfcx\tb"]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"instance": "h:1", "engine": "0", "pool": "p"}, "h:1"),
        ({"instance": "h:1", "engine": "1"}, "h:1/1"),
        ({"pool": "p"}, "p"),
        ({"b": "2", "a": "1"}, "a=1,b=2"),
        ({}, "all"),
    ],
)
def test_target_in_a_word(target: dict[str, str], text: str) -> None:
    assert target_text(target) == text


def test_a_state_word_says_what_matters_most() -> None:
    both = incident("a", silenced_by="s", acknowledged_at=START, acknowledged_by="Ana")
    assert state_word(both) == "acked"
    assert state_word(incident("a", silenced_by="s")) == "silenced"
    assert state_word(incident("a", "resolved", silenced_by="s")) == "resolved"


# ack


def test_acking(run: Run, fill: Callable[..., Path]) -> None:
    path = fill(incident("a"))
    code, out, _ = run("ack", "aa", "--by", "Ana")
    assert code == 0
    assert re.fullmatch(r"a{12} acked by Ana at \d\d:\d\d UTC: BatchLimitBinding gpu-a:8000\n", out)
    code, out, _ = run("ack", "aa", "--by", "Bob")
    assert code == 0
    assert "was already acked by Ana" in out
    with Store.open(path) as store:
        assert store.incident("a").acknowledged_by == "Ana"
    assert run("incidents")[1].split("\t")[1::6] == ["acked", "Ana"]


def test_acking_in_json_by_the_user_of_the_process(
    run: Run, fill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "carla")
    fill(incident("a"))
    told = json.loads(run("ack", "a", "--json")[1])
    assert told["schema_version"] == 1
    assert told["incident"]["acknowledged_by"] == "carla"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zz",), "is not the id of an incident"),
        (("ff",), "no incident"),
        (("a", "--by", " "), "--by"),
        (("a", "--by", "x" * 101), "--by"),
        (("b",), "has not fired yet"),
        (("c",), "already resolved"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_acked(
    run: Run, fill: Callable[..., Path], arguments: tuple[str, ...], said: str
) -> None:
    path = fill(incident("a"), incident("b", "pending"), incident("c", "resolved"))
    code, out, err = run("ack", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    with Store.open(path) as store:
        assert [i.acknowledged_by for i in store.incidents()] == [None] * 3


# mark


def test_marking_a_page(run: Run, fill: Callable[..., Path]) -> None:
    path = fill(incident("a"), incident("c", "resolved"))
    code, out, _ = run("mark", "c", "--not-useful", "--by", "Ana", "--because", "a load\x1b test")
    assert code == 0
    assert re.fullmatch(
        r"c{12} marked not useful by Ana at \d\d:\d\d UTC: BatchLimitBinding gpu-c:8000\n", out
    )
    told = json.loads(run("incidents", "--all", "--json")[1])["incidents"]
    assert [one["mark"] and one["mark"]["mark"] for one in told] == [None, "not useful"]
    assert told[1]["mark"]["because"] == "a load\x1b test"
    told = json.loads(run("mark", "c", "--useful", "--by", "Bob", "--json")[1])
    assert told["incident"]["mark"] | {"at": ""} == {
        "mark": "useful",
        "at": "",
        "by": "Bob",
        "because": None,
    }
    code, out, _ = run("mark", "c", "--undo")
    assert (code, out) == (0, f"{'c' * 12} is not marked any more: BatchLimitBinding gpu-c:8000\n")
    with Store.open(path) as store:
        assert store.marks(["a" * 12, "c" * 12]) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a",), "useful or not?"),
        (("a", "--undo"), "is not marked"),
        (("a", "--undo", "--because", "x"), "--because belongs to"),
        (("ff", "--useful"), "no incident"),
        (("b", "--useful"), "has not fired yet"),
        (("a", "--useful", "--because", "x" * 501), "at most 500 characters"),
        (("a", "--useful", "--by", " "), "--by"),
        (("a", "--useful", "--not-useful"), "one of them"),
        (("a", "--undo", "--useful"), "one of them"),
        (("a", "--useful", "--because", "caf\udce9"), "--because is not UTF-8 at its character 4"),
        (("a", "--useful", "--by", "Jos\udce9"), "--by is not UTF-8"),
    ],
)
def test_what_cannot_be_marked(
    run: Run, fill: Callable[..., Path], arguments: tuple[str, ...], said: str
) -> None:
    path = fill(incident("a"), incident("b", "pending"))
    code, out, err = run("mark", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    with Store.open(path) as store:
        assert store.marks(["a" * 12, "b" * 12]) == {}


def test_a_store_without_incidents_and_a_question_that_none_fits(
    run: Run, fill: Callable[..., Path]
) -> None:
    fill()
    assert run("incidents", "--all")[2] == "no incident\n"
    assert run("incidents", "--state", "firing")[2] == "no incident that fits\n"


# silence


def test_silencing_listing_and_expiring(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("a"), incident("b", "resolved"))
    code, out, _ = run(
        "silence", "alert=BatchLimitBinding", "instance=~gpu-.*", "--for", "2h", "--by", "Ana",
        "--comment", "restart",
    )  # fmt: skip
    assert code == 0
    found = re.fullmatch(
        r"silence ([0-9a-f]{12}) until [0-9: -]+UTC: alert=BatchLimitBinding instance=~gpu-\.\*; "
        r"matches 1 open now\n",
        out,
    )
    assert found is not None
    id_ = found[1]
    code, out, _ = run("silence", "--list")
    row = out.rstrip("\n").split("\t")
    assert (code, row[0], row[2:]) == (
        0,
        id_,
        ["Ana", "alert=BatchLimitBinding instance=~gpu-.*", "restart"],
    )
    (listed,) = json.loads(run("silence", "--list", "--json")[1])["silences"]
    assert listed["until"] == row[1]
    lasts = datetime.fromisoformat(row[1]) - datetime.fromisoformat(listed["created_at"])
    assert lasts == timedelta(hours=2)
    assert run("silence", "--expire", id_[:5])[:2] == (0, f"silence {id_} ended\n")
    code, out, err = run("silence", "--list")
    assert (code, out) == (0, "")
    assert "no silence holds" in err
    assert run("silence", "--expire", id_)[0] == 2


def test_a_silence_that_matches_nothing_says_so(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("a"))
    assert "matches no open incident now" in run("silence", "alert=Typo", "--for", "1h")[1]
    told = json.loads(run("silence", "alert=Typo", "--for", "1h", "--json")[1])
    assert told["silence"]["matchers"] == ["alert=Typo"]
    assert told["silence"]["expired_at"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of them"),
        (("--for", "2h"), "one of them"),
        (("a=b", "--list"), "one of them"),
        (("--list", "--expire", "ab"), "one of them"),
        (("--list", "--for", "2h"), "--for belongs"),
        (("a=b",), "how long"),
        (("a=b", "--for", "soon"), "--for"),
        (("a=b", "--for", "0s"), "above zero"),
        (("a=b", "--for", "-2h"), "negative"),
        (("a=b", "--for", "400d"), "at most 366d"),
        (("a=b", "--for", "999999999y"), "too long"),
        (("a", "--for", "2h"), "is not a matcher"),
        (("a=~(", "--for", "2h"), "not a regular expression"),
        (("a=~.*", "--for", "2h"), "every incident"),
        (("a=caf\udce9", "--for", "2h"), "a matcher is not UTF-8"),
        (("a=b", "--for", "2h", "--comment", "caf\udce9"), "--comment is not UTF-8"),
        (("--expire", "zz"), "is not the id"),
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


# which database


VERBS = [
    ("incidents",),
    ("ack", "a"),
    ("mark", "a", "--useful"),
    ("silence", "a=b", "--for", "1h"),
    ("silence", "--list"),
]


@pytest.mark.parametrize("verb", [*VERBS, ("db", "version")])
def test_a_missing_database_is_named_and_none_is_made(
    run: Run, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    code, out, err = run(*verb, "--db", "nowhere.db")
    assert (code, out) == (2, "")
    assert "there is no database nowhere.db" in err
    assert "help: " in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [*VERBS, ("db", "version"), ("db", "upgrade")])
def test_what_is_no_database_is_named(run: Run, tmp_path: Path, verb: tuple[str, ...]) -> None:
    (tmp_path / "notes.txt").write_text("not a database\n" * 100)
    code, out, err = run(*verb, "--db", "notes.txt")
    assert (code, out) == (2, "")
    assert "notes.txt is not a SQLite database" in err


def test_the_configuration_names_the_database(
    run: Run, fill: Callable[..., Path], tmp_path: Path
) -> None:
    fill(incident("a"), name="elsewhere.db")
    (tmp_path / "driftwatch.yaml").write_text(
        f"sources: [{{pages: ['http://127.0.0.1:9/metrics']}}]\ndatabase: {tmp_path}/elsewhere.db\n"
    )
    assert run("incidents", "-c", "driftwatch.yaml")[1].startswith("aaaa")
    assert run("incidents", "--db", "elsewhere.db")[1].startswith("aaaa")
    # as a page prints it: nothing named, typed where the configuration lies
    assert run("incidents")[1].startswith("aaaa")
    assert run("ack", "a" * 12, "--by", "ann")[0] == 0
    assert run("db", "version")[1].startswith(f"{tmp_path}/elsewhere.db: ")


def test_which_database_goes_before_which(
    run: Run, fill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"a": "flag.db", "b": "variable.db", "c": "file.db", "d": "driftwatch.db"}
    for digit, name in names.items():
        fill(incident(digit), name=name)
    other = tmp_path / "other"
    other.mkdir()
    (other / "dw.yaml").write_text("database: ../file.db\n")

    def first(*arguments: str) -> str:
        code, out, err = run("incidents", *arguments)
        assert (code, err) == (0, "")
        return out[0]

    assert first() == "d"
    assert first("-c", "other/dw.yaml") == "c"
    (tmp_path / "driftwatch.yaml").write_text("database: file.db\n")
    assert first() == "c"
    monkeypatch.setenv("DRIFTWATCH_DATABASE", str(tmp_path / "variable.db"))
    assert first() == "b"
    # the environment goes before `database` of any file, as it does for driftwatch run
    assert first("-c", "other/dw.yaml") == "b"
    assert first("--db", "flag.db", "-c", "other/dw.yaml") == "a"
    monkeypatch.setenv("DRIFTWATCH_DATABASE", "")
    assert first() == "c"


def test_a_configuration_with_a_problem_is_not_passed_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text("databse: file.db\n")
    code, _, err = run("incidents")
    assert code == 2
    assert "driftwatch.yaml:1:1: error[unknown-key]" in err
    assert "did you mean database?" in err


def test_explain_on_an_empty_store_knows_nothing(run: Run, fill: Callable[..., Path]) -> None:
    fill()
    code, out, err = run("explain", "host:8000")
    assert (code, out) == (4, "NO VERDICT: the store holds no scrape yet\n")
    assert err.startswith("help: ")
    code, out, err = run("explain", "host:8000", "--json")
    assert (code, out) == (4, "")
    assert err.startswith("NO VERDICT: ")


def test_debug_keeps_the_message_and_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["driftwatch", "--debug", "incidents"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "error: there is no database driftwatch.db" in err.splitlines()


@pytest.mark.parametrize("text", ["soon", "", "2026-13-01", "0s", "999999999y"])
def test_a_time_that_is_none(run: Run, fill: Callable[..., Path], text: str) -> None:
    fill()
    code, out, err = run("incidents", "--since", text)
    assert (code, out) == (2, "")
    assert "--since" in err


# db


def test_upgrading_and_asking(run: Run, tmp_path: Path) -> None:
    assert run("db", "upgrade")[:2] == (0, "driftwatch.db: schema none -> 0006\n")
    assert run("db", "upgrade")[:2] == (0, "driftwatch.db: schema 0006, nothing to do\n")
    code, out, _ = run("db", "version")
    assert code == 0
    assert re.fullmatch(r"driftwatch\.db: schema 0006 \(.*\); this version needs 0006\n", out)
    (tmp_path / "empty.db").touch()
    code, out, _ = run("db", "version", "--db", "empty.db")
    assert (code, out) == (1, "empty.db: schema none; this version needs 0006\n")
    assert run("incidents", "--db", "empty.db")[0] == 2


def test_a_closed_pipe_is_no_traceback(fill: Callable[..., Path], tmp_path: Path) -> None:
    fill(*(incident("a", id=f"{n:012x}", key=str(n), alert="A" * 200) for n in range(900)))
    start = "from driftwatch.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", start, "incidents"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
