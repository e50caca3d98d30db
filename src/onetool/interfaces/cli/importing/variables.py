"""`${…}` as other clients write it -> as our config does, where `${NAME}` is the secret or variable of that name."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onetool.config.mend import NAME
from onetool.core.secrecy import sounds_secret

_ANY = re.compile(r"\$?\{(?:env:[^{}]{1,200})\}|\$\{[^{}]{0,200}\}")
_NAMED = re.compile(rf"(?:env:)?({NAME})(?::-(.*))?\Z", re.DOTALL)
_BARE = re.compile(r"\$([A-Z_][A-Z0-9_]*)\Z")

OURS = re.compile(r"\$\{(" + NAME + r")\}")


def variable_name(text: str) -> str:
    """A text as the name of a secret: GITHUB_TOKEN for github-token."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "SERVER"
    return f"_{name}" if name[0].isdigit() else name


class Variables:
    """Replaces variables in the texts of one block. What can't be said in our config is put into `notes`."""

    def __init__(self, folder: Path, inputs: Mapping[str, Mapping[str, Any]], is_set: Callable[[str], bool]) -> None:
        self.notes: list[str] = []
        self._inputs = inputs
        self._is_set = is_set
        self._fixed = {
            "workspaceFolder": str(folder),
            "workspaceRoot": str(folder),
            "workspaceFolderBasename": folder.name,
            "userHome": os.path.expanduser("~"),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    def ours(self, text: str) -> str:
        if bare := _BARE.match(text):  # Gemini's short form, where it is all there is
            return f"${{{bare[1]}}}"
        return _ANY.sub(lambda found: self._one(found[0]), text)

    def _one(self, written: str) -> str:
        inside = written.lstrip("$")[1:-1]
        if inside in self._fixed:
            return self._fixed[inside]
        if inside.startswith("input:"):
            return self._input(inside.removeprefix("input:"))
        if named := _NAMED.match(inside):
            return self._variable(named[1], named[2])
        self.notes.append(f"{written} stays as it is: OneTool knows ${{NAME}} alone")
        return written

    def _variable(self, name: str, default: str | None) -> str:
        if default is None or self._is_set(name) or sounds_secret(name) or name.upper().endswith("_PAT"):
            return f"${{{name}}}"  # a secret's default is none
        self.notes.append(f"{name} is not set: its default is taken for good")
        return default

    def _input(self, id: str) -> str:
        name, asked = variable_name(id), self._inputs.get(id, {})
        default = asked.get("default")
        return self._variable(name, default if isinstance(default, str) and not asked.get("password") else None)
