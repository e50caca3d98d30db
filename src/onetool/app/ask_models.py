"""Which models can be asked here, and what the tools cost with each question.

No hosted provider is asked for that: of these, the models are known that the config names, and the one that is used
where nobody names one. A server of one's own (Ollama, `ask.base_url`) is asked for its list, for a moment.
"""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from onetool.app.provider_keys import keys_for
from onetool.ask.errors import AskError
from onetool.ask.model_choice import OLLAMA_SETTING, PROBE, ModelChoice, Secret, chosen_provider, model_lister
from onetool.ask.providers import NAMES, adapter

if TYPE_CHECKING:
    from onetool.app.ask import AskService


class KnownProvider(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider. `missing` is what has to be set before it can be asked."""

    id: str
    models: tuple[str, ...]
    is_configured: bool
    missing: str | UnsetType = UNSET


class ModelOverview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`provider` and `model` answer where a question names none; null: there is none."""

    provider: str | None
    model: str | None
    providers: tuple[KnownProvider, ...]
    tool_tokens: int


async def model_overview(service: "AskService", within: Collection[str] | None) -> ModelOverview:
    """`within` are the tools that may be called; None allows all."""
    providers = await asyncio.gather(*(_known_provider(service, name) for name in NAMES))
    by_name = {one.id: one for one in providers}
    choice = service.choice(None)
    name = await asyncio.to_thread(lambda: chosen_provider(choice, keys_for(service.runtime.config, choice)))
    chosen, toolset = by_name[name or "ollama"], service.toolset(within)
    return ModelOverview(
        provider=chosen.id if chosen.is_configured else None,
        model=next(iter(chosen.models), None) if chosen.is_configured else None,
        providers=tuple(providers),
        tool_tokens=await asyncio.to_thread(toolset.tokens, chosen.id),
    )


async def _known_provider(service: "AskService", name: str) -> KnownProvider:
    choice, own = service.choice(name), adapter(name)
    secret = keys_for(service.runtime.config, choice)
    if name == "ollama" or choice.base_url is not None:
        listed = await _listed(service, choice, secret)
        is_there, missing, further = listed is not None or choice.base_url is not None, OLLAMA_SETTING, listed or []
    else:
        is_there, missing, further = bool(await asyncio.to_thread(secret, own.key)), own.key, [own.model]
    models = tuple(dict.fromkeys(filter(None, [choice.model, *further])))
    return KnownProvider(id=name, models=models, is_configured=is_there, missing=UNSET if is_there else missing)


async def _listed(service: "AskService", choice: ModelChoice, secret: Secret) -> list[str] | None:
    """The models of a server of one's own; None where it does not answer."""
    try:
        lister = await asyncio.to_thread(model_lister, choice, secret, service.runtime.client)
        return await lister.names(PROBE)
    except AskError:
        return None
