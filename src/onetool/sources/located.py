"""Located: something that somebody wrote into a file, with its place, so that a complaint can point there."""

from typing import Any, Protocol

from onetool.core.errors import Mistake


class Located(Protocol):
    @property
    def definition(self) -> Any: ...

    @property
    def file(self) -> str: ...

    @property
    def line(self) -> int: ...

    @property
    def index(self) -> int: ...

    @property
    def mistakes(self) -> tuple[Mistake, ...]: ...
