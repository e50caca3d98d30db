"""`onetool serve --workers N`: a supervisor binds the sockets and keeps N processes that serve on them.

supervisor   starts the workers, replaces those that die, passes on signals
worker       the program of a worker

This module defines their messages: lines of JSON over a socket pair that the worker inherits. The first line is the
order. It contains a secret, which other users could read in the command line or the environment. Before all workers
stop, one after the other, the last one gets another line: LAST. When the supervisor dies, the channel closes, and the
worker stops.
"""

import msgspec

LAST = b"last\n"


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    count: int
    run: str = ""  # the same for all workers of this start
    config: str | None  # the path that was given; None: search for it
    host: str
    port: int
    addresses: tuple[str, ...]
    sockets: tuple[int, ...] = ()  # descriptors of the listening sockets
    place: str = ""  # the name of this process in the database
    key: bytes = b""  # seals the messages between workers
    database: str = ""  # the file that the workers share
    menu: str | None = None
    allowed: list[str] | None = None
    watch: bool = False
    server: list[str] | None = None  # the command line of an additional MCP server …
    name: str | None = None  # … and its name, if it was given
    drain_s: float | None = None  # seconds to keep accepting requests after SIGTERM
    level: str = "warning"  # of the log

    def __repr__(self) -> str:
        return f"WorkerOrder(number={self.number})"  # the key stays out of logs


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """A report that clients can connect."""

    greeting: str


class Reloaded(msgspec.Struct, frozen=True, tag="reloaded"):
    """A report that a reload has ended.

    `is_new` is whether a new config is in use; `was_asked`, whether a signal asked for it.
    """

    is_new: bool
    was_asked: bool


Report = Serving | Reloaded

decode_report = msgspec.json.Decoder(Report).decode
decode_order = msgspec.json.Decoder(WorkerOrder).decode
