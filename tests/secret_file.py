"""Files that hold secrets, for settings that take them from nowhere else."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

_FOLDER = tempfile.TemporaryDirectory()


def secret(text: str) -> Path:
    """A file with a secret; the same one for the same secret."""
    file = Path(_FOLDER.name) / hashlib.sha256(text.encode()).hexdigest()
    file.write_text(text)
    return file
