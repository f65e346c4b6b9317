"""Check vLLM's command line: flags that it does not have, values that it refuses.

Nothing is raised; every problem is added to the file, at the place of the command line.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.knobs import refusal
from driftwatch.vllm_arguments.command_line import flags_of, plain_words
from driftwatch.vllm_arguments.flags import FIELDS, GONE, misspelt, number_of
from driftwatch.yaml_positions import Place, Scalar, YamlFile


def check_text(text: Scalar, file: YamlFile) -> None:
    """Add every problem of a command line, or of what follows ``vllm serve``, at its flag."""
    line = str(text.value)
    try:
        words = plain_words(line)
    except ValueError as error:
        file.add(text.place, "quote", str(error))
        return
    places, end = [], 0
    for word in words:
        # a word with quotes or backslashes in it stands in the text in another form
        begin = line.find(word, end) if word else -1
        if begin < 0:
            places.append(text.place)
            continue
        end, before = begin + len(word), line[:begin]
        column = begin - (before.rfind("\n") + 1) + 1
        name = len(word.partition("=")[0])
        places.append(file.inside(text, before.count("\n") + 1, column, name))
    check_words(words, places, file)


def check_words(words: Sequence[str], places: Sequence[Place], file: YamlFile) -> None:
    """Add every problem of one command line, at the places of its words."""
    last: dict[str, tuple[float, Place]] = {}
    for flag, place in zip(flags_of(words), places, strict=False):
        if flag.written == "--":
            break
        if (gone := GONE.get(flag.name)) is not None:
            if gone.until is None:
                file.add(place, "no-such-flag", f"no vLLM has a flag {flag.name}", gone.instead)
            else:
                message = f"vLLM {gone.until} removed {flag.name}"
                file.add(place, "removed-flag", message, gone.instead, "warning")
        elif (meant := misspelt(flag.name)) is not None:
            message = f"{flag.written} sets nothing that driftwatch reads"
            file.add(place, "unknown-flag", message, f"did you mean {meant}?", "warning")
        if (field := FIELDS.get(flag.name)) is None:
            continue
        last.pop(field, None)
        try:
            number = number_of(flag)
        except ValueError as error:
            file.add(place, "flag-value", str(error))
            continue
        if number is not None:
            last[field] = number, place
    why = refusal({field: number for field, (number, _) in last.items()})
    if why is not None:
        file.add(last["max_num_batched_tokens"][1], "flag-conflict", why)
