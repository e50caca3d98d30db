"""Two servers that are replicas of each other, and a balancer that sends each request to the next one."""

import subprocess
from itertools import cycle
from pathlib import Path
from socket import gethostname

from helpers import start, until
from interfaces.mcp.servers import CONFIG, Server, environment
from postgres import free_port

MEMBER = Path(__file__).with_name("member.py")
KEY = "0123456789abcdef" * 4


class Member(Server):
    """A worker with an address of its own, over the state.db of others."""

    def __init__(self, folder, database, *args, config=CONFIG, **env):
        folder.mkdir(parents=True)
        self.folder = folder
        self.log_file = folder / "serve.log"
        self.port = free_port()
        self.place = f"{gethostname()}:{self.port}"
        own = environment(folder, **env) | {"ONETOOL_HOME": str(database.parent)}
        self._start(("--menu", "direct", *args), config, MEMBER, own)

    def _start(self, args, config, script, env):
        with self.log_file.open("wb") as log:
            self.process = start(
                *("--config", str(config), "serve", "--port", str(self.port), *args),
                script=script,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        until(self._address)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        return self.process.returncode if self.process.returncode is not None else super().stop()


class Replica(Member):
    """`onetool serve` with `database` and `cluster` in its config."""

    def __init__(self, folder, url, *args, more="", key=KEY):
        """`more` are lines of its config."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.log_file = folder / "serve.log"
        self.port = free_port()
        config = folder / "onetool.yaml"
        self.place = f"{gethostname()}:{self.port}"
        cluster = f"database: {url}\ncluster: {{key: '{key}'}}\n"
        config.write_text(CONFIG.read_text().replace("[packs]", f"[{CONFIG.parent / 'packs'}]") + cluster + more)
        self._start(("--menu", "direct", *args), config, None, environment(folder))


class Balancer:
    """Looks like one server. Each use of `port` is the next one's."""

    def __init__(self, *servers):
        self.servers = list(servers)
        self._next = cycle(self.servers)

    @property
    def port(self):
        return next(self._next).port

    def send(self, *args, **options):
        return next(self._next).send(*args, **options)

    def skip(self):
        """Whose turn is it? Not any more."""
        return next(self._next)
