"""Its tools are those in the file `DEFINITIONS`, read at every `tools/list`: a test changes them between two starts."""

import json
import os
from pathlib import Path
from typing import Any

from wire import Call, Server, text


class Changes(Server):
    def list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"tools": json.loads(Path(os.environ["DEFINITIONS"]).read_text(encoding="utf-8"))}

    def call(self, name: str, args: dict[str, Any], call: Call) -> dict[str, Any]:
        return text(name)


Changes().run()
