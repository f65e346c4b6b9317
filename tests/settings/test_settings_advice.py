from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.errors import ConfigError
from driftwatch.settings import load_settings

HEAD = "sources: [{pages: [http://h:8000/metrics]}]\n"


def problems(tmp_path: Path, text: str) -> list[tuple[int | None, str]]:
    path = tmp_path / "driftwatch.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigError) as refused:
        load_settings(path, environ={})
    return [(problem.line, problem.message) for problem in refused.value.problems]


def test_what_a_pool_may_say_of_its_engine(tmp_path: Path) -> None:
    path = tmp_path / "driftwatch.yaml"
    path.write_text(
        HEAD + "pools:\n  - name: a\n    serving: {model: Qwen/Qwen2.5-32B, "
        "gpu: NVIDIA H100 80GB HBM3, tensor_parallel: 2}\n"
        "receivers: [{name: mail, stdout: {}}]\n"
        "report: {weekday: friday, hour: 0, receivers: [mail]}\n"
    )
    found = load_settings(path, environ={})
    serving = found.pools[0].serving
    assert (serving.model, serving.gpu) == ("Qwen/Qwen2.5-32B", "NVIDIA H100 80GB HBM3")
    assert serving.tensor_parallel == 2
    assert found.report is not None
    assert (found.report.weekday, found.report.hour) == ("friday", 0)


def test_without_them_nothing_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "driftwatch.yaml"
    path.write_text(HEAD)
    found = load_settings(path, environ={})
    assert found.report is None


def test_every_wrong_value_is_named_at_its_line(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "pools:\n"
        "  - name: a\n"
        "    serving: {model: ' x', tensor_parallel: 0}\n"
        "    slo: {ttft_seconds: 5000}\n"
        "  - name: b\n"
        "    slo: {tpot_seconds: 50}\n"
        "receivers: [{name: mail, stdout: {}}]\n"
        "report: {weekday: Monday, hour: 24, receivers: [mial, mail, mail]}\n",
    )
    assert [line for line, _ in found] == [4, 4, 5, 7, 9, 9, 9, 9]
    said = "\n".join(message for _, message in found)
    for words in (
        "ttft_seconds 5000 is above 2560 seconds",
        "tpot_seconds 50 is above 10 seconds, beyond which vLLM's buckets tell nothing: are these",
        "one of monday, tuesday",
        "there is no receiver mial",
        "named twice: mail",
    ):
        assert words in said
