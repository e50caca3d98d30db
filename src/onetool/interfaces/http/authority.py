"""Names of hosts and of pages, each in its one spelling: what stands in Host, and what stands in Origin."""

import re
from ipaddress import ip_address
from typing import NamedTuple

USUAL_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s\[\]:/@?#\\]+)(?::([0-9]{1,5}))?")


class Authority(NamedTuple):
    """A host's name or address, and the port where one was given."""

    name: str
    port: int | None


class Origin(NamedTuple):
    """Where a page came from. Its port is the usual one of the scheme, where none was given."""

    scheme: str
    name: str
    port: int | None

    def is_at(self, host: Authority) -> bool:
        """Whether the page came from this host. TLS may end in front of us, so that only the page knows the scheme."""
        usual = USUAL_PORTS.get(self.scheme)
        return usual is not None and (self.name, self.port) == (host.name, usual if host.port is None else host.port)


def read_authority(text: str) -> Authority | None:
    """`Example.com.:80` -> example.com and 80; None when it is no host."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    name = match[1].lower().removesuffix(".").strip("[]")
    try:
        name = str(ip_address(name))
    except ValueError:
        if match[1].startswith("[") or not name:
            return None
    return Authority(name, int(match[2]) if match[2] else None)


def read_origin(text: str) -> Origin | None:
    """`https://Example.com` -> https, example.com and 443; None when it is no origin, as `null` is none."""
    scheme, _, rest = text.lower().partition("://")
    place = read_authority(rest)
    if place is None:
        return None
    return Origin(scheme, place.name, USUAL_PORTS.get(scheme) if place.port is None else place.port)
