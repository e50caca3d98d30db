"""`onetool serve --workers N`: a supervisor binds the sockets and keeps N processes that serve on them.

supervisor   starts the workers, replaces those that die, passes on signals
worker       the program of a worker

Here is what the two tell each other: lines of JSON over a pair of sockets that the worker inherits. The first line is
the order: others could read the command line or the environment, and it has a secret in it. When all workers are about
to stop, one after the other, each gets one more: STOPPING, or LAST for the last one. When the supervisor dies the
channel ends, and so does the worker.
"""

import msgspec

STOPPING, LAST = b"stopping\n", b"last\n"


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    count: int
    run: str = ""  # the same for all workers of this start
    config: str | None  # as it was named; None: it is found
    host: str
    port: int
    addresses: tuple[str, ...]
    sockets: tuple[int, ...] = ()  # descriptors that listen
    socket: str = ""  # the path where other workers reach this one
    key: bytes = b""  # what they know each other by
    database: str = ""  # the file that they share
    menu: str | None = None
    allowed: list[str] | None = None
    watch: bool = False
    server: list[str] | None = None  # the command line of an MCP server beside those of the config …
    name: str | None = None  # … and its name, if it was given
    drain_s: float | None = None  # seconds in which requests are still taken after SIGTERM
    level: str = "warning"  # of the log

    def __repr__(self) -> str:
        return f"WorkerOrder(number={self.number})"  # the key stays out of logs


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """Clients can connect."""

    greeting: str


class Reloaded(msgspec.Struct, frozen=True, tag="reloaded"):
    """A reload has ended. `is_new`: there is another config in force now. `was_asked`: a signal asked for it."""

    is_new: bool
    was_asked: bool


Report = Serving | Reloaded

decode_report = msgspec.json.Decoder(Report).decode
decode_order = msgspec.json.Decoder(WorkerOrder).decode
