from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.durations import parse_duration
from driftwatch.errors import ConfigError, Problem
from driftwatch.rulebook.book import Rulebook, load_rulebook, read_rulebook
from driftwatch.settings import Settings

RULE = """\
groups:
  - name: g
    rules:
      - alert: TooSlow
        when: ttft_10m_seconds > 1
        for: 1h30m
        keep_firing_for: 5m
        severity: page
        tree: batch-size-drift
        labels: {team: serving, signal: ttft}
        annotations: {summary: slow, runbook_url: https://host/runbook}
        receivers: [oncall]
"""


def write(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def rules(folder: Path, *bodies: str) -> Path:
    items = "".join(f"      - {{{body}}}\n" for body in bodies)
    return write(folder, f"groups:\n  - name: g\n    rules:\n{items}")


def problems(*paths: Path) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_rulebook(paths)
    return list(caught.value.problems)


def ids(book: Rulebook) -> list[str]:
    return [rule.id for rule in book.rules]


def test_every_field(tmp_path: Path) -> None:
    path = write(tmp_path, RULE)
    book = load_rulebook([path])
    (rule,) = book.rules
    assert rule.id == 'TooSlow{signal="ttft", team="serving"}'
    assert (rule.alert, rule.group, rule.severity) == ("TooSlow", "g", "page")
    assert rule.when.text == "ttft_10m_seconds > 1"
    assert rule.when.columns == {"ttft_10m_seconds"}
    assert (rule.for_seconds, rule.keep_firing_for_seconds) == (5400.0, 300.0)
    assert rule.enabled and rule.reason is None
    assert rule.labels == {"team": "serving", "signal": "ttft"}
    assert rule.annotations["runbook_url"] == "https://host/runbook"
    assert rule.receivers == ("oncall",)
    assert (rule.path, rule.line) == (str(path), 4)
    assert set(book.trees) == {"batch-size-drift"}  # the shipped one, because it is named


def test_identities(tmp_path: Path) -> None:
    one = "alert: A, when: restarted, severity: page"
    path = rules(
        tmp_path,
        one,
        "alert: A, when: restarted, severity: ticket",
        "alert: A, when: restarted, severity: page, labels: {q: 'say \"x\"'}",
        "alert: B, when: restarted, severity: notice",
    )
    assert ids(load_rulebook([path])) == [
        'A{severity="page"}',
        'A{severity="ticket"}',
        'A{q="say \\"x\\""}',
        "B",
    ]


def test_two_rules_that_cannot_be_told_apart(tmp_path: Path) -> None:
    path = rules(tmp_path, *["alert: A, when: restarted, severity: page"] * 2)
    (problem,) = problems(path)
    assert (problem.code, problem.line) == ("duplicate", 5)
    assert f"the first is in {path}:4" in problem.message


def test_folders_globs_and_files_that_are_not_there(tmp_path: Path) -> None:
    rules(tmp_path, "alert: A, when: restarted, severity: page")
    write(tmp_path, "tree: t\nstart: n\nnodes: {n: {question: Is it?, when: restarted, yes: a, "
          "no: b}}\nleaves: {a: {kind: healthy, meaning: m}, b: {kind: healthy, meaning: m}}\n",
          "trees/t.yaml")  # fmt: skip
    book = load_rulebook([tmp_path])
    assert (ids(book), list(book.trees)) == (["A"], ["t"])
    book = load_rulebook([tmp_path / "*.yaml", tmp_path / "r.yaml"])
    # once, although it is named twice; trees/ lies beside a file that is named, too
    assert (ids(book), list(book.trees)) == (["A"], ["t"])
    found = [(p.code, p.line) for p in problems(tmp_path / "x.yaml", tmp_path / "x*.yaml")]
    assert found == [("no-files", None), ("unreadable", None)]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert [p.code for p in problems(empty)] == ["no-files"]


CONFIGURED = Settings.model_validate(
    {
        "receivers": [{"name": name, "stdout": {}} for name in ("oncall", "ana")],
    }
)


def test_names_of_the_configuration_are_checked_where_they_are_known(tmp_path: Path) -> None:
    key = "receivers: [ana, oncal]"
    path = rules(tmp_path, f"alert: A, when: restarted, severity: page, {key}")
    assert read_rulebook([path]).problems == ()
    (problem,) = read_rulebook([path], configured=CONFIGURED).problems
    assert (problem.code, problem.help_text) == ("unknown-receiver", "did you mean oncall?")
    assert problem.source_line is not None and problem.column is not None
    assert problem.source_line[problem.column - 1 :].rstrip("}\n") in key.replace("ana, ", "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1d", 86400), ("250ms", 0.25),
     ("1w2d", 777600), ("0s", 0)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "m", "5 m", "30m1h", "5m5m", "1.5h", "-5m", "5M", "٥m", "9" * 50 + "s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
