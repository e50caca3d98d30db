"""GET /metrics: counts of this process and the state of its parts, for Prometheus.

Admins may read it, and clients with `metrics.token`, which allows nothing else. Workers of `serve --workers` share one
address, so each of them reports for all; replicas on several machines are scraped separately.
"""

import asyncio
import hmac
import os
import platform
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from onetool._version import __version__
from onetool.core.principal import LOCAL
from onetool.http.asgi import HEAD, HttpError, Receive, Scope, Send, respond
from onetool.http.definition import TOOL_HEADER
from onetool.interfaces.http.credentials import bearer
from onetool.interfaces.http.rules import AccessRules
from onetool.interfaces.rest.problem import role_error
from onetool.services.metrics import CONTENT_TYPE, Family, Metrics, Sample, counter, exposition, gauge

if TYPE_CHECKING:
    from onetool.app import App
    from onetool.cluster import Replica
    from onetool.cluster.cluster import Cluster

METRICS_PATH = "/metrics"
KIND = "metrics"  # of messages between workers
WORKER_S = 2.0  # for another worker to answer
MAX_SERVERS = 100  # named in labels
STARTED_AT = time.time()


class MetricsApp:
    """The ASGI app of /metrics, which also reports for other workers of the same machine."""

    def __init__(self, app: "App", rules: Callable[[], AccessRules], cluster: "Cluster | None" = None) -> None:
        self._app = app
        self._rules = rules
        self._cluster = cluster
        self._has_workers = cluster is not None and cluster.settings.is_worker
        self._metrics = Metrics()
        app.runtime.recorder.observers.append(self._metrics.observe)
        if cluster is not None:
            cluster.mailbox.handlers[KIND] = self._answer_worker
            cluster.mailbox.internal.add(KIND)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await self._check_caller(scope)
        processes = {"" if self._cluster is None else self._cluster.id: await asyncio.to_thread(self.families)}
        if self._cluster is not None and self._has_workers:
            here = self._cluster.settings.place  # the address of all workers of a server
            others = [one for one in self._cluster.members.alive() if one.id != self._cluster.id and one.place == here]
            answers = await asyncio.gather(*(self._ask(self._cluster, one) for one in others))
            processes |= {one.id: found for one, found in zip(others, answers, strict=True) if found}
        await respond(send, 200, await asyncio.to_thread(exposition, processes), CONTENT_TYPE)

    async def _check_caller(self, scope: Scope) -> None:
        """Raise HttpError (401, 403) unless the caller is an admin or has `metrics.token`, and isn't a tool."""
        if TOOL_HEADER in scope[HEAD]:
            raise HttpError(403, "not_for_tools", "Tools and MCP servers may not read metrics.")
        authorization, token = scope[HEAD].get(b"authorization"), self._app.config.metrics.token
        if token is not None and hmac.compare_digest(bearer(authorization) or b"", token.encode()):
            return
        principal = scope["principal"] = await self._rules().authenticate(authorization, scope)
        if not principal.may("admin"):
            raise role_error(principal, "admin")

    async def _ask(self, cluster: "Cluster", worker: "Replica") -> list[Family]:
        """Return the metrics of another worker; an empty list if it has just ended."""
        try:
            async with asyncio.timeout(WORKER_S):
                return msgspec.convert(await cluster.mailbox.ask(worker.id, KIND, None, LOCAL), list[Family])
        except (HttpError, TimeoutError):
            return []

    async def _answer_worker(self, _body: None) -> Any:
        return msgspec.to_builtins(await asyncio.to_thread(self.families))

    def families(self) -> list[Family]:
        """Return all metrics of this process. May block for a moment."""
        app, runtime = self._app, self._app.runtime
        runtime.recorder.flush()
        found = [*self._metrics.families(), *_process_families()]
        journal = app.journal.current
        waiting = {"events": len(runtime.recorder.waiting), "audit": 0 if journal is None else journal.waiting}
        dropped = {"events": runtime.recorder.lost, "audit": 0 if journal is None else journal.lost_rows}
        found += [
            gauge("onetool_queue_waiting", "Events waiting to be written.", waiting, "queue"),
            counter(
                "onetool_queue_dropped",
                "Events that were lost because a queue was full.",
                {(("queue", queue),): number for queue, number in dropped.items()},
            ),
            gauge("onetool_tools", "Tools in the catalogue.", app.catalog.count()),
        ]
        if usage := runtime.sandbox_usage():
            slots = usage.pop("slots")
            found += [
                gauge("onetool_sandbox_slots", "Maximum number of concurrent runs.", slots),
                gauge("onetool_sandbox_runs", "Runs in progress, and runs waiting for a slot.", usage, "state"),
            ]
        if (servers := app.servers) is not None:
            states = {one.name: one.state for one in servers.statuses()}
            connected = {name: float(state == "connected") for name, state in [*states.items()][:MAX_SERVERS]}
            found += [
                gauge("onetool_upstream_servers", "MCP servers by state.", Counter(states.values()), "state"),
                gauge("onetool_upstream_up", "1 if the MCP server is connected.", connected, "server"),
            ]
        if self._cluster is not None:
            alive = len(self._cluster.members.alive())
            found.append(gauge("onetool_replicas", "Replicas or workers that serve requests.", alive))
        if app.config.database is not None and (database := app.database) is not None:
            found += [
                gauge(
                    "onetool_database_up", "1 if the database was reached at the last attempt.", not database.is_away
                ),
                gauge("onetool_database_connections", "Connections of the pool.", database.pool_usage(), "state"),
            ]
        return found


def _process_families() -> list[Family]:
    """Return the process metrics that Prometheus's own client libraries export, under the same names."""
    times = os.times()
    version = (("version", __version__), ("python", platform.python_version()))
    found = [
        Family("onetool_info", "gauge", "Always 1: the versions are labels.", [Sample(1, version)]),
        Family(
            "process_cpu_seconds_total", "counter", "CPU time of this process.", [Sample(times.user + times.system)]
        ),
        gauge("process_start_time_seconds", "When this process started, in seconds since 1970.", STARTED_AT),
        gauge("onetool_threads", "Threads of this process.", threading.active_count()),
    ]
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
        found += [
            gauge("process_resident_memory_bytes", "Memory of this process.", pages * os.sysconf("SC_PAGE_SIZE")),
            gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd"))),
        ]
    return found
