"""WorkerShare: which of several workers this process is. Most processes are alone, and are the first of one.

What is limited for a server as a whole is divided among its workers; what needs doing once is done by the first.
"""

from typing import NamedTuple


class WorkerShare(NamedTuple):
    number: int = 1
    workers: int = 1
    run: str = ""  # the same for all workers of one start of the server

    @property
    def is_first(self) -> bool:
        return self.number == 1

    def of(self, total: int) -> int:
        """This worker's part of a total, at least 1."""
        return max(1, total // self.workers + (self.number <= total % self.workers))


_own = WorkerShare()


def worker_share() -> WorkerShare:
    return _own


def set_worker_share(share: WorkerShare) -> None:
    """Called once, when the process starts."""
    global _own
    _own = share
