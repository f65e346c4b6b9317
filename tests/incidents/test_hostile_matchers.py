"""Regular expressions that would never come to an end elsewhere, and labels of any length."""

from __future__ import annotations

import subprocess
import sys

import pytest

from driftwatch.errors import UsageError
from driftwatch.incidents.silence import MOST_MATCHERS, parse_matchers
from driftwatch.matchers import Matcher, parse_matcher

LABEL = "a" * 5000 + "!"
_SEARCH = """
import sys
from driftwatch.matchers import parse_matcher
print([parse_matcher(f"pool=~{one}").matches({"pool": sys.argv[1]}) for one in sys.argv[2:]])
"""


def test_no_expression_hangs() -> None:
    """In a process of its own: what hangs in C cannot be interrupted."""
    slow = ["(a+)+", "(a|aa)+", "(a|a)*b", "(.*)*x", "(a*)*$", "(.*a){30}b", "(a?){60}a{60}"]
    command = [sys.executable, "-c", _SEARCH, LABEL, *slow]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == f"{[False] * len(slow)}\n"


@pytest.mark.parametrize(
    "expression",
    ["(?!x)a", "(?<=x)a", "(a)\\1", "(?P<n>a)(?P=n)", "(?:a{1000}){1000}", "(?x)a #"],
)
def test_what_cannot_be_searched_in_bounded_time_is_refused(expression: str) -> None:
    for operator in ("=~", "!~"):
        with pytest.raises(UsageError, match="is not searched") as refused:
            parse_matcher(f"pool{operator}{expression}")
        assert refused.value.help_text is not None
        # one that an older version stored holds nothing back
        assert not Matcher("pool", operator, expression).matches({"pool": "a"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "label", "fits"),
    [
        ("gpu-7:.*", "gpu-7:8000", True),
        ("gpu-7", "gpu-7:8000", False),
        ("a|b", "ab", False),
        ("a.b", "a\nb", True),
        ("(?i)rag", "RAG", True),
        ("", "", True),
        ("é+", "éé", True),
        ("a", "a" * 2000, False),
        ("a*", "a" * 2000, True),
    ],
)
def test_the_whole_label_has_to_fit(expression: str, label: str, fits: bool) -> None:
    assert parse_matcher(f"pool=~{expression}").matches({"pool": label}) is fits
    assert parse_matcher(f"pool!~{expression}").matches({"pool": label}) is not fits


def test_a_silence_has_few_matchers() -> None:
    assert len(parse_matchers(["pool=a"] * MOST_MATCHERS)) == MOST_MATCHERS
    with pytest.raises(UsageError, match="at most 20 matchers"):
        parse_matchers(["pool=a"] * (MOST_MATCHERS + 1))
