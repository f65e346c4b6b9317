from __future__ import annotations

import pytest

from driftwatch.rulebook.render import render_problems
from driftwatch.vllm_arguments import line_problems
from driftwatch.vllm_arguments.command_line import human_int, plain_words, split


def _problems(text: str, version: tuple[int, int] | None = (0, 32)) -> list[str]:
    """``severity code place: message`` of each."""
    return [
        f"{p.severity} {p.code} {text[p.column - 1 : p.column - 1 + p.length]}: {p.message}"
        for p in line_problems(text, version=version)
        if p.column is not None
    ]


@pytest.mark.parametrize(
    "text,problem",
    [
        (
            "--max-num-seqs 4k",
            "error flag-value 4k: --max-num-seqs takes a whole number",
        ),
        ("--max-num-seqs=0", "error flag-value 0: --max-num-seqs 0 must be at least 1"),
        ("--max-num-seqs -3", "error flag-value -3: --max-num-seqs -3 must be at least 1"),
        ("--max_num_seqs 8.5", "error flag-value 8.5: --max-num-seqs takes a whole number"),
        (
            "--gpu-memory-utilization 90",
            "error flag-value 90: --gpu-memory-utilization 90 must be at most 1",
        ),
        (
            "--gpu-memory-utilization=nan",
            "error flag-value nan: --gpu-memory-utilization takes a finite number",
        ),
        (
            "--max-num-batched-tokens 4k",
            "warning size-suffix 4k: vLLM reads 4k as 4,000",
        ),
        (
            "--max-num-batched-tokens 1.5K",
            "error flag-value 1.5K: --max-num-batched-tokens takes a whole number",
        ),
        (
            "--max-num-batched-tokens 64 --max-num-seqs 128",
            "error flag-conflict 64: --max-num-batched-tokens 64 is below --max-num-seqs 128: "
            "vLLM refuses to start",
        ),
        (
            "--max-num-batched-tokens 2048 --max-model-len 8192 --no-enable-chunked-prefill",
            "error flag-conflict 2048: --max-num-batched-tokens 2048 is below --max-model-len 8192 "
            "without chunked prefill: vLLM refuses to start",
        ),
        (
            "--max-num-active-seqs 65 --max-num-seqs 64",
            "error flag-conflict 65: --max-num-active-seqs 65 is above --max-num-seqs 64: "
            "vLLM refuses to start",
        ),
        ("--max-num-seqs", "error no-value --max-num-seqs: --max-num-seqs has no value"),
        (
            "--max-num-seqs --port 80",
            "error no-value --max-num-seqs: --max-num-seqs has no value",
        ),
        (
            "--max-num-seqs 8 --max_num_seqs=16",
            "warning repeated-flag --max-num-seqs: --max-num-seqs stands twice: vLLM takes the "
            "last one",
        ),
        (
            "--enable-chunked-prefill --no-enable-chunked-prefill",
            "warning repeated-flag --enable-chunked-prefill: --enable-chunked-prefill stands "
            "twice: vLLM takes the last one",
        ),
        (
            "--enable-prefix-caching false --port 80",
            "error takes-no-value false: --enable-prefix-caching takes no value",
        ),
        (
            "--preemption-mode swap",
            "error removed-flag --preemption-mode: vLLM 0.32 has no --preemption-mode: 0.11 "
            "removed it",
        ),
        (
            "--tensor-parallel 8",
            "warning abbreviated-flag --tensor-parallel: --tensor-parallel is short for "
            "--tensor-parallel-size, until another flag begins so",
        ),
        (
            "--max-num-seqz 8",
            "warning unknown-flag --max-num-seqz: --max-num-seqz is not in the table of vLLM's "
            "flags (0.4 to 0.33)",
        ),
        (
            "\u2013max-num-seqs 0x",
            "error dash \u2013max-num-seqs: a dash stands here where vLLM wants two hyphens",
        ),
        (
            "--speculative-config {'method':'ngram'}",
            "error json m: --speculative-config is no JSON: expecting property name enclosed in "
            "double quotes",
        ),
        (
            """--speculative-config '{"num_speculativ_tokens": 3}'""",
            'warning unknown-flag "num_speculativ_tokens": --speculative-config: '
            "num_speculativ_tokens is not in the table of its keys",
        ),
        ("--speculative-config.num_speculative_tokens 0",
         "error flag-value 0: --speculative-config.num_speculative_tokens 0 must be above 0"),
        ("--port '8000", "error quote ': a quote is never closed"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(text: str, problem: str) -> None:
    assert problem in _problems(text)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 256 --max_num_batched_tokens=8K -tp 2",
        "python -m vllm.entrypoints.openai.api_server --model x --max-model-len auto",
        "--max-model-len -1 --max-num-seqs 1_024 --no-enable-prefix-caching",
        "--max-num-seqs $SEQS --max-num-batched-tokens `cat budget` --port ${PORT:-80}",
        "--middleware a.b --middleware c.d --served-model-name a b c",
        """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""",
        """--kv-transfer-config '{"cpu_bytes_to_use": 80m}' --compilation-config 3""",
        "numactl --interleave all vllm serve m --port 80 2>&1 | tee --append log",
        "FOO=1 vllm serve m && kubectl --max-num-seqs",
        "vllm serve m -- --max-num-seqs zero",
        "vllm serve --help=all",
        "vllm serve m --compilation-config.mode 3 --quantization-config.moe.activation mxfp8",
        "docker run --rm --gpus all --ipc=host vllm/vllm-openai:v0.9.1 --num-scheduler-steps 8",
        "ray start --head --port 6379; vllm serve m",
        "",
    ],
)
def test_what_vllm_takes_is_no_problem(text: str) -> None:
    version = None if text.startswith("docker") else (0, 32)
    assert _problems(text, version) == []


def test_an_older_release_has_other_rules() -> None:
    assert _problems("--enable-chunked-prefill False", (0, 7)) == []
    assert _problems("--num-scheduler-steps 8 --preemption-mode swap", (0, 8)) == []
    (problem,) = _problems("--no-enable-chunked-prefill", (0, 7))
    assert problem == (
        "error too-new-flag --no-enable-chunked-prefill: vLLM 0.7 has no "
        "--no-enable-chunked-prefill: it is new in 0.8"
    )
    assert _problems("--no-enable-prefix-caching", (0, 8)) == []
    (problem,) = _problems("--max-num-batched-tokens 4k", (0, 8))
    assert problem.startswith("error flag-value 4k")
    (problem,) = _problems("--max-num-batched-tokens 2048 --max-model-len 8192", (0, 6))
    assert "without chunked prefill" in problem
    (problem,) = _problems("--max-num-active-seqs 8", (0, 12))
    assert problem == (
        "error too-new-flag --max-num-active-seqs: vLLM 0.12 has no --max-num-active-seqs: "
        "it is new in 0.31"
    )


def test_the_image_of_docker_run_is_a_release() -> None:
    text = "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.32.0 --model m --swap-space 4"
    (problem,) = _problems(text, None)
    assert problem.startswith("error removed-flag --swap-space: vLLM 0.32 has no --swap-space")


def test_without_a_version_what_is_gone_is_a_warning() -> None:
    (problem,) = line_problems("--swap-space 4")
    assert (problem.severity, problem.message, problem.help_text) == (
        "warning",
        "vLLM 0.18 removed --swap-space",
        "V1 does not swap; use --kv-offloading-size (since 0.11)",
    )


def test_a_problem_in_the_second_line_of_a_text() -> None:
    text = "vllm serve m \\\n  --max-num-seqs 'eight'\n"
    (problem,) = line_problems(text)
    assert render_problems([problem], files=1) == (
        "--arguments:2:19: error[flag-value] --max-num-seqs takes a whole number\n"
        " 2 |   --max-num-seqs 'eight'\n"
        "   |                   ^^^^^\n"
        "1 error in 1 file"
    )


@pytest.mark.parametrize(
    "text,commands",
    [
        ("a b;c", [["a", "b"], ["c"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ('a#b \'c # d\' "e\\"f" g\\ h', [["a#b", "c # d", 'e"f', "g h"]]),
        ("a$(b c; d) e", [["a$(b c; d)", "e"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a\\\nb", [["ab"]]),
        ("a > out 2>&1 b", [["a", "b"]]),
        ("''", [[""]]),
        ("a 'b", [["a", "b"]]),
        ("a \\", [["a", ""]]),
    ],
)
def test_words_of_a_shell_text(text: str, commands: list[list[str]]) -> None:
    assert [[word.text for word in command] for command in split(text)] == commands


def test_an_open_quote_has_no_words() -> None:
    with pytest.raises(ValueError, match="never closed"):
        plain_words("--port '8000")
    assert plain_words("it\\'s # don't") == ["it's"]


@pytest.mark.parametrize(
    "text,number", [("8192", 8192), ("8k", 8000), ("8K", 8192), ("2.5m", 2500000)]
)
def test_numbers_as_vllm_takes_them(text: str, number: int) -> None:
    assert human_int(text) == number
