"""The shipped tables, and a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.errors import ConfigError, UsageError
from driftwatch.simulate.hardware import Model, gpu, model, read_hardware, shipped_hardware
from driftwatch.simulate.hardware import with_hardware as hardware_of

SHIPPED = shipped_hardware()

OWN = """\
gpus:
  X1:
    dense_tflops: {bf16: 100}
    memory_bandwidth_gb_per_second: 1000
    memory_gib: 30
    sources: {dense_tflops: a, memory_bandwidth_gb_per_second: b, memory_gib: c}
"""


@pytest.mark.parametrize("row", SHIPPED.models.values(), ids=lambda row: row.name)
def test_the_shapes_of_each_model_give_its_published_parameters(row: Model) -> None:
    # what is left out (norms, biases) is below 0.02 % of every model: a wrong layer count, width
    # or vocabulary would be far more
    assert row.shapes.total == pytest.approx(row.parameters, rel=2e-4)
    assert row.shapes.total < row.parameters


def test_names_and_aliases_find_one_row_and_no_alias_two() -> None:
    assert gpu("h100") is gpu("H100-80GB") is gpu("NVIDIA H100 80GB HBM3")
    assert model("meta-llama/Llama-3.1-8B-Instruct") is model("llama-3.1-8b")
    assert model("deepseek-ai/DeepSeek-R1").name == "deepseek-v3"
    for table in (SHIPPED.gpus, SHIPPED.models):
        names = [n.casefold() for row in table.values() for n in (row.name, *row.aliases)]
        assert len(names) == len(set(names))


def test_an_unknown_name_says_what_is_close() -> None:
    with pytest.raises(UsageError, match="no GPU 'H10O-80GB'") as caught:
        gpu("H10O-80GB")
    assert "did you mean H100-80GB?" in str(caught.value.help_text)
    with pytest.raises(UsageError, match="no model 'llama-9-8b'") as caught:
        model("llama-9-8b")
    assert "--hardware FILE" in str(caught.value.help_text)


def test_a_file_of_ones_own_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace("X1", "H100-80GB"))
    own = hardware_of(path)
    assert own.gpu("H100-80GB").memory_gib == 30
    assert own.gpu("A10").memory_gib == gpu("A10").memory_gib
    assert own.model("llama-3-8b") is model("llama-3-8b")
    assert gpu("H100-80GB").memory_gib != 30


def test_every_problem_of_a_file_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    shapes = "\n".join(
        f"    {name}: {value}"
        for name, value in model("llama-3-8b").model_dump(exclude_none=True).items()
        if name not in ("name", "aliases", "num_hidden_layers", "source")
    )
    path.write_text(
        OWN.replace("1000", "-3").replace("memory_gib: 30", "memory_gb: 30")
        + f"models:\n  m:\n    source: here\n    num_hidden_layers: 16\n{shapes}\nextra: 1\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_hardware(path)
    said = {(p.line, p.message) for p in caught.value.problems}
    lines = {line for line, _ in said}
    assert {4, 5} <= lines
    text = " ".join(message for _, message in said)
    assert "unknown key memory_gb" in text
    assert "memory_gib is missing" in text
    assert "the shapes give" in text  # half the layers cannot hold all the parameters
    assert "unknown key extra" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no GPU and no model"),
        ("gpus: 3\n", "names and their values"),
        ("gpus: {a: 3}\n", "keys and values"),
        ("gpus: [", "expected"),
        (OWN.replace("memory_gib: 30", "memory_gib: 1e300"), "at most 10,000,000"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_hardware(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hardware(tmp_path / "none.yaml")
