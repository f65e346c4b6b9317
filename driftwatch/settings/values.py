"""Types of settings, with their checks: secrets, URLs, durations, files, names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SecretStr,
    ValidationInfo,
)

from driftwatch.errors import ConfigError, Problem
from driftwatch.yaml_models import Duration, Part, fault

SECRET = "<secret>"  # noqa: S105 - what is printed instead of one


class Secret(SecretStr):
    """A text that prints as ``<secret>`` everywhere but in ``get_secret_value()``."""

    def _display(self) -> str:
        return SECRET


def http_url(text: str) -> str:
    """An http(s) URL without credentials; messages never hold the URL."""
    try:
        parts = urlsplit(text)
        valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or any(character.isspace() for character in text):
        raise ValueError("not a URL such as http://host:9090")
    if parts.scheme not in ("http", "https"):
        raise ValueError("only http:// and https:// URLs are allowed")
    if parts.username is not None or parts.password is not None:
        raise ValueError("no user or password in a URL; a Prometheus has basic_auth")
    return text


def _secret_http(secret: Secret) -> Secret:
    http_url(secret.get_secret_value())
    return secret


def _header(text: str) -> str:
    """Refuse what no header can hold: a line end would make two requests of one."""
    if not all(" " <= one <= "~" or "\xa0" <= one <= "\xff" for one in text):
        raise ValueError("a header cannot hold control characters, nor any outside of Latin-1")
    if text != text.strip():
        raise ValueError("a header cannot begin or end with a space")
    return text


def below(path: Path, info: ValidationInfo) -> Path:
    """A file's path, relative to the configuration's folder."""
    base = (info.context or {}).get("base")
    expanded = path.expanduser()
    return expanded if base is None else base / expanded


def base_url(*paths: str) -> AfterValidator:
    """Refuses a URL that ends with one of the paths: those of the API driftwatch adds itself."""

    def checked(url: str) -> str:
        for path in paths:
            if url.rstrip("/").endswith(path):
                message = "the address of the API is wanted here, without the path of a page"
                message = f"driftwatch adds {path} itself" if path.startswith("/api/") else message
                raise fault("value", message, f"leave {path} out")
        return url

    return AfterValidator(checked)


Seconds = Annotated[Duration, Field(gt=0)]
Url = Annotated[str, AfterValidator(http_url)]
SecretUrl = Annotated[Secret, AfterValidator(_secret_http)]
HeaderText = Annotated[str, AfterValidator(_header)]
File = Annotated[Path, AfterValidator(below)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=63)]
Text = Annotated[str, Field(pattern=r"^\S(.*\S)?$", max_length=200)]
Labels = dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]
Count = Annotated[int, Field(gt=0, strict=True)]
Number = Annotated[float, Field(gt=0, strict=True)]


Names = tuple[Name, ...]


def one_of(part: BaseModel, *names: str, required: bool = True) -> None:
    """Refuse a part in which not exactly one of the fields is given."""
    present = [name for name in names if getattr(part, name) is not None]
    if len(present) > 1 or (required and not present):
        those = " and ".join(present) if present else "none"
        raise ValueError(f"give exactly one of {', '.join(names)}; this part has {those}")
    for name in present:
        one = getattr(part, name)
        if isinstance(one, SecretStr) and not one.get_secret_value().strip():
            raise ValueError(f"{name} is empty")


def read_of(inline: SecretStr | None, file: Path | None) -> str | None:
    """Read a secret, from its file at this moment; None where neither is given.

    Raises ConfigError: the file cannot be read, is empty, or holds more than one line or another
    control character, which no header, URL or password can.
    """
    if inline is not None:
        return inline.get_secret_value()
    if file is None:
        return None
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise _unusable(file, "unreadable", reason.lower()) from None
    if not secret:
        raise _unusable(file, "empty", "it is empty")
    if len(secret.splitlines()) > 1:
        raise _unusable(file, "value", "it has several lines")
    if any(unicodedata.category(character) == "Cc" for character in secret):
        raise _unusable(file, "value", "it holds a control character")
    return secret


def read_url_of(inline: SecretStr | None, file: Path | None) -> str:
    """The same for a URL, which is checked.

    Raises ConfigError: the file cannot be read, or holds no http(s) URL.
    """
    url = read_of(inline, file) or ""
    try:
        return http_url(url)
    except ValueError as error:
        raise _unusable(file or Path(), "value", str(error)) from None


class WithSecrets(Part):
    """A part with secrets, each in the configuration (``NAME``) or in a file (``NAME_file``)."""

    def read(self, name: str) -> str | None:
        """A secret at this moment; None where it is not given.

        Raises ConfigError: its file cannot be read, or holds no secret.
        """
        return read_of(getattr(self, name, None), getattr(self, f"{name}_file"))

    def read_url(self, name: str = "url") -> str:
        """The same for a URL. Raises ConfigError: as above, or it is no http(s) URL."""
        return read_url_of(getattr(self, name, None), getattr(self, f"{name}_file"))


def read_secrets(part: BaseModel) -> None:
    """Read every secret of a part once, those in its own parts too.

    Raises ConfigError: one cannot be read.
    """
    for field in type(part).model_fields:
        value, name = getattr(part, field), field.removesuffix("_file")
        if isinstance(value, BaseModel):
            read_secrets(value)
        elif isinstance(part, WithSecrets) and name not in (field, "ca") and value is not None:
            part.read_url(name) if name.endswith("url") else part.read(name)


# A token or key in the place of a file's name: Slack's, a JSON web token, 32 hex digits or more.
LOOKS_SECRET = re.compile(r"(?<![\w-])(?:xox[a-z]-|xapp-|eyJ)[\w-]{4}|(?<![\w-])[0-9A-Fa-f]{32}")


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, longest first."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, SECRET)
    return text


def _unusable(file: Path, code: str, reason: str) -> ConfigError:
    what = "a URL" if ":/" in str(file) else "a secret" if LOOKS_SECRET.search(file.name) else ""
    if what:
        message = f"a file's name is wanted here, not {what}"
        return ConfigError((Problem(SECRET, None, None, "value", message),))
    message = f"the secret in this file cannot be used: {reason}"
    return ConfigError((Problem(str(file), None, None, code, message),))
