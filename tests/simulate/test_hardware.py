"""The shipped tables, a user's own GPUs, and models of config.json files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from driftwatch.errors import ConfigError, UsageError
from driftwatch.simulate.hardware import gpu, model, shipped_hardware
from driftwatch.simulate.kv_cache import bytes_per_token, held_tokens
from driftwatch.yaml_positions import plain, read_yaml

TABLE: Any = plain(read_yaml(Path("driftwatch/simulate/models.yaml")).root)

OWN = """\
gpus:
  X1:
    dense_tflops: {bf16: 100}
    memory_bandwidth_gb_per_second: 1000
    memory_gib: 30
    sources: {dense_tflops: a, memory_bandwidth_gb_per_second: b, memory_gib: c}
"""


@pytest.mark.parametrize("short", TABLE["models"])
def test_the_shapes_of_each_model_give_its_published_parameters(short: str) -> None:
    # what is left out (norms, biases) is below 0.02 % of every model: a wrong layer count, width
    # or vocabulary would be far more
    total, published = model(short).shapes.total, TABLE["models"][short]["parameters"]
    assert total == pytest.approx(published, rel=2e-4)
    assert total < published


@pytest.mark.parametrize(
    ("asked", "taken", "max_model_len", "weight_bytes"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 131_072, 2.0),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", 131_072, 2.0),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", 32_768, 2.0),
        ("/models/Qwen2.5-7B/", "Qwen/Qwen2.5-7B", 131_072, 2.0),
        ("qwen3-30b-a3b-instruct-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507", 262_144, 2.0),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B", 40_960, 2.0),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1", 163_840, 1.0),
    ],
)
def test_an_exact_name_is_no_guess(
    asked: str, taken: str, max_model_len: int, weight_bytes: float
) -> None:
    found = model(asked)
    assert (found.name, found.max_model_len) == (taken, max_model_len)
    assert found.weight_bytes_per_parameter == weight_bytes
    assert found.notes == ()


@pytest.mark.parametrize(
    ("asked", "taken", "weight_bytes"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct", 0.5),
        ("x/Llama-3.1-8B-Instruct-FP8-dynamic", "meta-llama/Llama-3.1-8B-Instruct", 1.0),
        ("x/Llama-3.1-8B-quantized.w8a8", "meta-llama/Llama-3.1-8B", 1.0),
        ("Qwen3-14B-Instruct", "Qwen/Qwen3-14B", 2.0),
    ],
)
def test_a_guess_says_so(asked: str, taken: str, weight_bytes: float) -> None:
    found = model(asked)
    assert (found.name, found.weight_bytes_per_parameter) == (taken, weight_bytes)
    assert f"{asked} is not in the table: {taken} is a guess" in found.notes[0]


def test_an_unknown_name_says_what_is_close() -> None:
    assert gpu("h100") is gpu("H100-80GB") is gpu("NVIDIA H100 80GB HBM3")
    with pytest.raises(UsageError, match="no GPU 'H10O-80GB'") as caught:
        gpu("H10O-80GB")
    assert "did you mean H100-80GB?" in str(caught.value.help_text)
    with pytest.raises(UsageError, match="no model 'llama-9-8b'") as caught:
        model("llama-9-8b")
    assert "give its config.json: --model FILE" in str(caught.value.help_text)
    names = [n.casefold() for g in shipped_hardware().gpus.values() for n in (g.name, *g.aliases)]
    assert len(names) == len(set(names))


# --- a user's own GPUs


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    assert (gpu(str(path)).name, gpu(str(path)).memory_gib) == ("X1", 30)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "no GPU in this file"),
        ("gpus: 3\n", 1, "names and their values"),
        ("gpus: {a: 3}\n", 1, "keys and values"),
        ("gpus: [", 1, "expected"),
        (OWN.replace("memory_gib: 30", "memory_gib: 1e300"), 5, "at most 10,000,000"),
        (OWN.replace("1000", "-3"), 4, "at least"),
        (OWN.replace("memory_gib: 30", "memory_gb: 30"), 5, "unknown key memory_gb"),
        (OWN + "models: {}\n", 7, "unknown key models"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        gpu(str(path))
    assert line in {one.line for one in caught.value.problems}
    with pytest.raises(ConfigError, match="cannot be read"):
        gpu(str(tmp_path / "none.yaml"))


# --- config.json


def config_of(short: str, **more: Any) -> dict[str, Any]:
    """The config.json of a model of the table."""
    ours = ("served_as", "source", "parameters")
    return {key: value for key, value in TABLE["models"][short].items() if key not in ours} | more


LLAMA = config_of(
    "llama-3.1-8b",
    architectures=["LlamaForCausalLM"],
    max_position_embeddings=131072,
    rope_scaling={
        "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3",
    },
    torch_dtype="bfloat16",
)  # fmt: skip
QWEN = config_of(
    "qwen2.5-7b", max_position_embeddings=32768, sliding_window=131072, use_sliding_window=False
)
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
MIXTRAL = config_of(
    "mixtral-8x7b", model_type="mixtral", max_position_embeddings=32768, sliding_window=None
)
DEEPSEEK = config_of(
    "deepseek-v3",
    max_position_embeddings=163840,
    rope_scaling={"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"},
)
GEMMA = {  # google/gemma-3-12b-it: its class has the rest
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 3840,
        "intermediate_size": 15360,
        "model_type": "gemma3_text",
        "num_attention_heads": 16,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
FOUR_BITS = {"config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}


class Read(NamedTuple):
    """What is to be read of a config.json."""

    max_model_len: int
    kv_kib_per_token: float  # of 16 bit, on one GPU
    parameters: float  # 10^9
    weight_bytes: float | None = 2.0


CONFIGS = {
    "llama": (LLAMA, Read(131_072, 128, 8.03)),
    "qwen": (QWEN, Read(32_768, 56, 7.61)),
    "qwen with yarn": (QWEN | {"rope_scaling": YARN}, Read(131_072, 56, 7.61)),
    "qwen of transformers 5": (
        {**QWEN, "rope_parameters": {"full_attention": YARN | {"rope_type": "yarn"}}},
        Read(131_072, 56, 7.61),
    ),
    "long rope": (
        LLAMA | {"model_type": "phi3", "original_max_position_embeddings": 4096}
        | {"rope_scaling": {"type": "longrope", "long_factor": [1.0]}},
        Read(4096, 128, 8.03),
    ),
    "mixtral": (MIXTRAL, Read(32_768, 128, 46.70)),
    "deepseek": (DEEPSEEK, Read(163_840, 68.625, 671.03, 1.0)),
    "gemma": (GEMMA, Read(131_072, 384, 11.77)),
    "awq": (QWEN | {"quantization_config": {"bits": 4, "quant_method": "awq"}},
            Read(32_768, 56, 7.61, 0.5)),
    "compressed": (LLAMA | {"quantization_config": FOUR_BITS}, Read(131_072, 128, 8.03, 0.5)),
    "quantized somehow": (
        LLAMA | {"quantization_config": {"quant_method": "new"}},
        Read(131_072, 128, 8.03, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_says_what_vllm_derives_from_it(kind: str, tmp_path: Path) -> None:
    config, wanted = CONFIGS[kind]
    path = tmp_path / "a model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    found = model(str(path))
    assert found.name == "a model"
    assert found.max_model_len == wanted.max_model_len
    assert bytes_per_token(found) / 1024 == wanted.kv_kib_per_token
    assert found.shapes.total / 1e9 == pytest.approx(wanted.parameters, abs=0.01)
    assert found.weight_bytes_per_parameter == wanted.weight_bytes
    assert bool(found.notes) == (kind == "gemma")  # the vision part is not counted


def test_sliding_windows_hold_fewer_tokens(tmp_path: Path) -> None:
    def held(config: dict[str, Any], name: str) -> float:
        (path := tmp_path / f"{name}.json").write_text(json.dumps(config))
        return held_tokens(model(str(path)), 5000)

    assert held(GEMMA, "gemma") == pytest.approx((8 * 5000 + 40 * 1024) / 48)
    windows = QWEN | {"use_sliding_window": True, "sliding_window": 1000}
    kinds = ["sliding_attention", "full_attention"] * 14
    assert held(windows | {"layer_types": kinds}, "types") == 3000
    assert held(windows, "every layer") == 1000
    assert held(QWEN, "switched off") == 5000


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (LLAMA | {"index_topk": 2048}, "KV size unknown: .*sparse attention"),
        (LLAMA | {"kv_lora_rank": 512}, "KV size unknown: .*latent attention"),
        (LLAMA | {"mamba_d_state": 128}, "KV size unknown: .*Mamba"),
        (LLAMA | {"attn_type_list": [0, 1]}, "KV size unknown: .*linear-attention"),
        (
            LLAMA | {"layer_types": ["linear_attention", "full_attention"] * 16},
            "KV size unknown: .*linear_attention",
        ),
        (
            {"vocab_size": 8, "hidden_size": 8},
            "num_hidden_layers or n_layer is missing; num_atten",
        ),
        (LLAMA | {"hidden_size": "wide"}, "hidden_size is no whole number from 1: 'wide'"),
        (LLAMA | {"num_key_value_heads": 5}, "no multiple of num_key_value_heads"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "above the number of experts"),
        ([LLAMA], "no JSON object"),
    ],
)
def test_what_cannot_be_known_is_said(config: Any, says: str, tmp_path: Path) -> None:
    (path := tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=f"config.json: .*{says}") as caught:
        model(str(path))
    assert caught.value.help_text


def test_a_file_that_is_no_config(tmp_path: Path) -> None:
    (path := tmp_path / "broken.json").write_text('{"vocab_size": 8,\n]')
    with pytest.raises(UsageError, match=r"broken\.json:2:1: no JSON"):
        model(str(path))
    with pytest.raises(UsageError, match="No such file"):
        model(str(tmp_path / "none.json"))
