"""The names of the model providers and of their API keys.

Every module of `onetool.ask.providers` whose name has no underscore in front is a provider. The names are read from the
folder, so that the config, the formats and the command line know them without importing the adapters.
"""

from os import listdir
from os.path import dirname, join
from typing import TYPE_CHECKING, Literal

from onetool.core.errors import Need

_FOLDER = join(dirname(dirname(__file__)), "ask", "providers")

PROVIDERS = tuple(sorted(name[:-3] for name in listdir(_FOLDER) if name.endswith(".py") and name[0] != "_"))

if TYPE_CHECKING:
    ProviderName = str
else:
    ProviderName = Literal[PROVIDERS]


def key_name(provider: str) -> str:
    """Return what the API key of a provider is called among the secrets and in the environment."""
    return f"{provider.upper()}_API_KEY"


def key_need(provider: str) -> Need:
    """Return that the key of this provider has to be set."""
    return Need(command=f"onetool auth set {provider}", secret=key_name(provider))


PROVIDER_KEYS = {key_name(provider): provider for provider in PROVIDERS}
