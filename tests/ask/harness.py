"""An app whose model is the stand-in: `with Harness(folder) as harness: harness.model.will(…); harness.ask("…")`."""

import asyncio
from pathlib import Path
from typing import Any, Self

import yaml
from ask.stand_in import StandIn

from onetool import App
from onetool.ask.events import Answer, Event
from onetool.core.model_providers import PROVIDER_KEYS

KEY = "sk-stand-in-0123456789"


class Harness:
    """`config` is further keys; `packs` are modules by name, with their code."""

    def __init__(
        self, folder: Path, provider: str = "openai", packs: dict[str, str] | None = None, **config: Any
    ) -> None:
        self.folder = folder
        self.model = StandIn()
        self._provider = provider
        self._packs = packs or {}
        self._config = config

    def __enter__(self) -> Self:
        self.model.__enter__()
        ask = {"provider": self._provider, "model": "stand-in", "base_url": self.model.urls[self._provider]}
        config = {"packs": [], "fs": {"roots": [str(self.folder)]}, "secrets": "secrets.yaml", **self._config}
        config["ask"] = {**ask, **self._config.get("ask", {})}
        (self.folder / "secrets.yaml").write_text(yaml.safe_dump(dict.fromkeys(PROVIDER_KEYS, KEY)))
        (self.folder / "secrets.yaml").chmod(0o600)
        for name, code in self._packs.items():
            (self.folder / f"{name}.py").write_text(code)
            config["packs"].append(f"{name}.py")
        self.config = self.folder / "onetool.yaml"
        self.config.write_text(yaml.safe_dump(config))
        self.app = App.open(self.config)
        return self

    def __exit__(self, *_: object) -> None:
        self.app.close()
        self.model.__exit__(None, None, None)

    def ask(self, prompt: str = "What is it?", **options: Any) -> Answer:
        async def asked() -> Answer:
            return await self.app.ask(prompt, **options)

        return asyncio.run(asked())

    def events(self, prompt: str = "What is it?", **options: Any) -> list[Event]:
        async def watched() -> list[Event]:
            return [event async for event in self.app.ask(prompt, **options)]

        return asyncio.run(watched())

    def said_to_model(self, request: int = -1) -> str:
        """All that a request says, as text."""
        import json

        return json.dumps(self.model.seen[request].body, ensure_ascii=False)
