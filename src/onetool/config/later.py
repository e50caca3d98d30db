"""Keys that are understood and checked, but that nothing reads yet: set ones are told rather than silently ignored."""

from onetool.config.model import Config
from onetool.core.errors import Mistake

# A part that comes into use takes its key out of here.
LATER = {
    "ask": "ask",
}


def not_in_use(config: Config) -> tuple[Mistake, ...]:
    """One warning for each key that somebody set and that has no effect in this version."""
    defaults = Config(home=config.home)
    return tuple(
        Mistake(
            message="understood, but not in use in this version", file=str(config.path), key=key, severity="warning"
        )
        for name, key in LATER.items()
        if getattr(config, name) != getattr(defaults, name)
    )
