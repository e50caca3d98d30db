"""Manage hosts that HTTP tools may call."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from onetool.app.operations import At, Command, operation
from onetool.app.operations.fields import Input
from onetool.core.text import or_rather
from onetool.sources.bundles.errors import ConflictError, NotFoundError, invalid_at


class AllowedHost(msgspec.Struct, frozen=True, rename="camel"):
    """A host of the config that tools may connect to."""

    host: str
    allow_private: Annotated[bool, Meta(description="It may resolve to addresses of this machine or its network.")]


class HostList(msgspec.Struct, frozen=True):
    """The hosts that tools may connect to."""

    hosts: list[AllowedHost]


@operation(
    "GET",
    "/hosts",
    "Server",
    role="admin",
    audited=False,
    completes="host",
    command=Command(
        "hosts list",
        rows="hosts",
        columns=("host", "allowPrivate"),
        empty="No host is allowed, so HTTP tools can't call any. Allow one: onetool hosts allow api.example.com",
    ),
)
def list_hosts(at: At) -> HostList:
    """List the allowed hosts."""
    return HostList([AllowedHost(one.host, one.allow_private) for one in at.config.allowed_hosts])


class HostGrant(Input, frozen=True):
    """Options for a host."""

    private: Annotated[
        bool,
        Meta(description="Let the name resolve to addresses of this machine or its network, as private names may."),
    ] = False


class GrantedHost(msgspec.Struct, frozen=True):
    """A host that tools may connect to."""

    host: Annotated[str, Meta(description="The host as in the config: IDN in ASCII.")]
    private: bool


@operation(
    "PUT",
    "/hosts/{host}",
    "Server",
    role="admin",
    example={},
    errors=(400, 409),
    changes_access=True,
    command=Command("hosts allow", many=True),
)
def allow_host_for_tools(at: At, host: str, asked: HostGrant) -> GrantedHost:
    """Allow tools to connect to a host.

    The host is written to the config and allowed at once. It may have a port. Wildcards such as `*.example.com`, and
    URLs in place of hosts, can be given only on the command line. No tool can call this.
    """
    from onetool.app.grants import GrantValueError, allow_host, allow_hosts, read_host  # they load the editor of YAML

    try:
        if not at.is_command:
            return GrantedHost(*allow_host(at.app, host, asked.private))
        host, is_private = read_host(host)
    except GrantValueError as error:
        raise invalid_at("/host", str(error)) from None
    except ValueError as error:
        raise invalid_at("/host", f"{error}") from None
    target, private = at.config_target(), asked.private or is_private
    is_new = allow_hosts(target, [(host, private)])
    at.say(f"Allowed {host} in {target.file}." if is_new else f"{host} is allowed already.")
    return GrantedHost(host, private)


@operation(
    "DELETE",
    "/hosts/{host}",
    "Server",
    role="admin",
    errors=(404, 409),
    changes_access=True,
    command=Command("hosts remove", many=True),
)
def remove_host(at: At, host: str) -> None:
    """Remove a host from the config. Tools can't connect to it any more."""
    from onetool.config.edit import drop_host

    target = at.config_target()
    there = {one.host.lower(): one.host for one in target.config.allowed_hosts}
    if host.lower() not in there:
        rather = or_rather(host, there.values()) or "; see: onetool hosts list"
        raise NotFoundError(f"{host} is not among the allowed hosts{rather}")
    before = target.text()
    target.write(partial(drop_host, host=host))
    if target.text() == before:
        raise ConflictError(f"{host} is defined in a file that the config includes: remove it there.")
    at.load(target.file, settings_only=True)
    at.say(f"Removed {host} from {target.file}.")
