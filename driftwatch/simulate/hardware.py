"""GPUs and models by name: values of datasheets and config.json files, with their sources.

The shipped tables are ``gpus.yaml`` and ``models.yaml`` beside this module. A user's own GPU comes
from a file of the same form, a user's own model from its config.json.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driftwatch.errors import ConfigError, UsageError
from driftwatch.simulate.model_config import Model, model_of
from driftwatch.yaml_models import note_errors
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile, plain, read_yaml

_HERE = Path(__file__).resolve().parent
_MAX_BYTES = 1 << 20  # of standard input; a config.json has some kilobytes
_LENGTH = "max_position_embeddings"
_WANTED = "give the config.json that lies beside the model's weights"
# Ending of a name → bytes of a narrowed weight; other endings of _ENDING name the training.
_NARROWED = {
    **dict.fromkeys(("fp8", "fp8-dynamic", "int8", "w8a8", "8bit"), 1.0),
    **dict.fromkeys(("awq", "int4", "gptq", "gptq-int4", "w4a16", "4bit"), 0.5),
}
_ENDING = re.compile(
    r"[-.](fp8(?:-dynamic)?|int8|w8a8|w4a16|[48]bit|awq|gptq(?:-int4)?|int4|bf16|quantized|bnb"
    r"|instruct|chat|base|it|hf|\d{4})$"
)

# TFLOPS, GB/s and GiB of one GPU: limits far beyond any GPU, which keep the arithmetic finite
Positive = Annotated[float, Field(ge=1e-3, le=1e7, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DenseTflops(_Part):
    """Peak of the matrix units without sparsity, 10^12 operations a second, by operand type."""

    bf16: Positive
    fp8: Positive | None = None


class GpuSources(_Part):
    """The source of each value."""

    dense_tflops: Text
    memory_bandwidth_gb_per_second: Text
    memory_gib: Text


class Gpu(_Part):
    """One GPU."""

    name: Text  # in the table
    aliases: tuple[Text, ...] = ()  # its other names
    dense_tflops: DenseTflops  # 10^12 floating-point operations a second, by operand type
    memory_bandwidth_gb_per_second: Positive  # 10^9 bytes a second
    memory_gib: Positive  # available to a process, 2^30 bytes
    sources: GpuSources  # of the values above

    @property
    def bandwidth_bytes_per_second(self) -> float:
        """Memory bandwidth by the datasheet."""
        return self.memory_bandwidth_gb_per_second * 1e9

    @property
    def memory_bytes(self) -> int:
        """Memory available to a process."""
        return int(self.memory_gib * 2**30)

    def flops_per_second(self, dtype_bytes: float = 2.0) -> float:
        """Peak for weights of this many bytes; without such units of the next wider type."""
        tflops = self.dense_tflops
        narrow = dtype_bytes <= 1.0 and tflops.fp8 is not None
        return (tflops.fp8 if narrow and tflops.fp8 is not None else tflops.bf16) * 1e12


@dataclass(frozen=True, slots=True)
class Hardware:
    """GPUs and models by name."""

    gpus: Mapping[str, Gpu]
    models: Mapping[str, Model]  # by each served name, and by the short name

    def gpu(self, name: str) -> Gpu:
        """A GPU by its name or an alias, in any case, or the GPU of a YAML file.

        Raises UsageError: no table has it, or the file has several; ConfigError: the file has
        problems.
        """
        if is_file(name):
            return read_gpu(name)
        spelled = {word: row for row in self.gpus.values() for word in (row.name, *row.aliases)}
        if (found := _folded_names(tuple(spelled)).get(_folded(name))) is not None:
            return spelled[found]
        cure = f"known: {', '.join(self.gpus)}; give a YAML file of another: --gpu FILE"
        raise _unknown("GPU", name, spelled, cure)

    def model(self, name: str) -> Model:
        """A model by its name, or by the path of its config.json.

        Another publisher or folder before the name does not matter. A name with an ending for
        narrowed weights or further training gives a guess, and its notes say so.

        Raises UsageError: no table has it, or the file cannot be read.
        """
        if is_file(name):
            return read_config(name)
        spelled = _folded_names(tuple(self.models))
        asked = _folded(name).rstrip("/")
        rest, narrowed = asked.rsplit("/", 1)[-1], 2.0
        if (whole := spelled.get(asked) or spelled.get(rest)) is not None:
            return self.models[whole]
        while ending := _ENDING.search(rest):
            rest, narrowed = rest[: ending.start()], min(narrowed, _NARROWED.get(ending[1], 2.0))
            if rest in spelled:
                return _guess(name, self.models[spelled[rest]], narrowed)
        folder = f"{name.rstrip('/')}/config.json" if name.startswith((".", "/")) else "FILE"
        raise _unknown("model", name, self.models, f"give its config.json: --model {folder}")

    def find_gpu(self, name: str | None) -> tuple[Gpu | None, str]:
        """The GPU of that name, or why there is none."""
        if name is None:
            return None, "GPU unknown (serving.gpu in driftwatch.yaml)"
        try:
            return self.gpu(name), ""
        except (UsageError, ConfigError) as error:
            return None, f"{error}; serving.gpu takes the path of a YAML file of it"

    def find_model(self, name: str | None) -> tuple[Model | None, str]:
        """The model of that name, or why there is none."""
        if name is None:
            return None, "model unknown (serving.model in driftwatch.yaml)"
        try:
            return self.model(name), ""
        except UsageError as error:
            return None, f"{error}; serving.model takes the path of its config.json"


def gpu(name: str) -> Gpu:
    """A GPU of the shipped table.

    Raises UsageError: it is not there.
    """
    return shipped_hardware().gpu(name)


def model(name: str) -> Model:
    """A model of the shipped table, or of a config.json.

    Raises UsageError: it is not there.
    """
    return shipped_hardware().model(name)


@lru_cache(maxsize=1)
def shipped_hardware() -> Hardware:
    """The shipped tables."""
    table: Any = plain(read_yaml(_HERE / "models.yaml").root)
    models: dict[str, Model] = {}
    for short, row in table["models"].items():
        for name, length in row["served_as"].items():
            one = model_of({**row, _LENGTH: length}, name=name, where=f"models.yaml, {short}")
            models |= {name: one, name.rsplit("/", 1)[-1]: one}
            models.setdefault(short, one)
    return Hardware(read_gpus(_HERE / "gpus.yaml"), models)


def read_gpus(path: Path) -> dict[str, Gpu]:
    """The GPUs of one table file, by name.

    Raises ConfigError: every problem of the file, with line and column.
    """
    file, gpus = read_yaml(path), dict[str, Gpu]()
    for key, (place, node) in file.root.entries.items() if isinstance(file.root, Entries) else ():
        if key != "gpus":
            file.add(place, "unknown-key", f"unknown key {key}", "known key: gpus")
        elif not isinstance(node, Entries):
            file.add(place, "value", "names and their values are wanted here")
        else:
            gpus |= _rows(file, node)
    if not file.problems and not gpus:
        file.add(Place(1, 1), "empty", "no GPU in this file", "gpus:")
    if file.problems:
        raise ConfigError(tuple(file.problems))
    return gpus


@lru_cache(16)
def read_gpu(path: str) -> Gpu:
    """The only GPU of a file like ``gpus.yaml``; each path is read once.

    Raises ConfigError: every problem of the file; UsageError: it has several.
    """
    found = list(read_gpus(Path(path)).values())
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise UsageError(f"{path} has several GPUs: {names}", help_text="give each its own file")
    return found[0]


def is_file(name: str) -> bool:
    """Whether a name is a file's path, or ``-`` for standard input.

    A name that a server reports must never be a file: a label must not choose a file to read.
    """
    return name == "-" or name.endswith((".json", ".yaml", ".yml"))


@lru_cache(16)
def read_config(path: str) -> Model:
    """The model of a config.json; each path is read once.

    Raises UsageError: it cannot be read, is no JSON object, or as :func:`model_of`.
    """
    where = "standard input" if path == "-" else path
    try:
        text = sys.stdin.buffer.read(_MAX_BYTES) if path == "-" else Path(path).read_bytes()
        config = orjson.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", help_text=_WANTED) from error
    except orjson.JSONDecodeError as error:
        at = f"{where}:{error.lineno}:{error.colno}"
        raise UsageError(f"{at}: no JSON: {error.msg}", help_text=_WANTED) from error
    if not isinstance(config, dict):
        raise UsageError(f"{where}: no JSON object", help_text=_WANTED)
    return model_of(config, name=_name(config, path), where=where)


def _name(config: Mapping[str, Any], path: str) -> str:
    """The model's name by the file, else by its folder; Hugging Face's cache has it further up."""
    if isinstance(said := config.get("_name_or_path"), str) and said:
        return said
    folders = ("the model",) if path == "-" else Path(path).resolve().parts[:-1]
    name = next((one for one in folders if one.startswith("models--")), folders[-1])
    return name.removeprefix("models--").replace("--", "/")


def _guess(name: str, found: Model, weight_bytes: float) -> Model:
    note = (
        f"{name} is not in the table: {found.name} is a guess; "
        "its config.json would be certain (--model FILE)"
    )
    narrowed = min(found.weight_bytes_per_parameter or 2.0, weight_bytes)
    return replace(found, weight_bytes_per_parameter=narrowed, notes=(*found.notes, note))


def _rows(file: YamlFile, node: Entries) -> dict[str, Gpu]:
    by_name: dict[str, Gpu] = {}
    for name, (place, child) in node.entries.items():
        if not isinstance(child, Entries):
            file.add(place, "value", "keys and values are wanted here")
            continue
        named = Entries(place, {**child.entries, "name": (place, Scalar(place, name))})
        try:
            by_name[name] = Gpu.model_validate_json(orjson.dumps(plain(named)))
        except ValidationError as error:
            note_errors(file, named, Gpu, error)
    return by_name


def _unknown(what: str, name: str, spelled: Iterable[str], cure: str) -> UsageError:
    most = 1 if what == "GPU" else 3  # all GPUs are listed
    close = _closest(_folded(name), tuple(spelled))[:most]
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return UsageError(f"no {what} {name!r} in the tables", help_text=f"{hint}{cure}")


@lru_cache(256)  # advice looks up the model of a server some hundred times
def _closest(folded: str, spelled: tuple[str, ...]) -> list[str]:
    names = _folded_names(spelled)
    return [names[one] for one in difflib.get_close_matches(folded, names, n=3)]


@lru_cache(8)
def _folded_names(names: tuple[str, ...]) -> Mapping[str, str]:
    """Folded name → its spelling; of two the first."""
    return {_folded(one): one for one in reversed(names)}


@lru_cache(1024)
def _folded(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")
