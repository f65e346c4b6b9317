from __future__ import annotations

import pytest
from truth_judge.report import MARKER, interval, into_page, number, sections


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "%", "–"),
        (0.98765, "%", "98.8 %"),
        (0.0, "%", "0 %"),
        (571.0, "min", "9.52 min"),
        (12.3456, "s", "12.3 s"),
        (137402.0, "", "137,402"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_an_interval_or_why_there_is_none() -> None:
    told = {"value": 0.5, "low": 0.25, "high": 0.75, "blocks": 40, "note": None}
    assert interval(told, "%") == "50 % [25, 75]"
    assert interval(told | {"low": None, "high": None, "blocks": 3}, "%") == "50 % (3 blocks)"
    assert interval(told | {"value": None}) == "–"
    assert interval(None) == "–"


def test_a_page_keeps_its_words_and_gets_new_figures() -> None:
    nothing = {"value": None, "low": None, "high": None, "blocks": 0, "note": "nothing to count"}
    figures = {
        "seed": 7,
        "set": "smoke",
        "commit": "abc",
        "date": None,
        "goals": [],
        "false_alarms": {},
        "detection": {},
        "unexpected": {},
        "leaves": {},
        "recommendation": {
            "episodes": 0,
            "some_knob_helps": 0,
            "answers": {},
            "advisers": {
                "pages": {
                    "advised": 0,
                    "refused": 0,
                    "gain_captured_ratio": nothing,
                    "gain_captured_faults_too_ratio": nothing,
                    "hurt_ratio": nothing,
                    "none_helps_ratio": nothing,
                    "no_help_of_advised_ratio": nothing,
                },
            },
        },
        "healthy_ln_r": {},
        "disguise": [],
        "cost": {
            "server_months": 0.0,
            "replay_seconds_per_server_month": None,
            "generate_seconds_per_server_month": None,
            "took_seconds": 1.0,
        },
    }
    first = into_page(f"# Words\n\n{MARKER}\nold figures\n", figures)
    assert first.startswith(f"# Words\n\n{MARKER}\n")
    assert "old figures" not in first and "Seed 7, set `smoke`" in first
    assert "### Leaves" in first
    assert "knob advised where none helps" in "\n".join(sections(figures))
    assert into_page(first, figures) == first
    with pytest.raises(ValueError, match="lacks the line"):
        into_page("# Words\n", figures)
