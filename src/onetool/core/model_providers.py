"""The names of the model providers and of their API keys.

Every module of `onetool.ask.providers` without a leading underscore is a provider. The names are read from the folder,
so that the config, the formats and the command line need not import the adapters.
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
    """Return the name of a provider's API key as a secret and as an environment variable."""
    return f"{provider.upper()}_API_KEY"


def key_need(provider: str) -> Need:
    """Return the requirement to store this provider's API key."""
    return Need(command=f"onetool auth set {provider}", secret=key_name(provider))


PROVIDER_KEYS = {key_name(provider): provider for provider in PROVIDERS}
