"""Why a path is not opened, or not written: one word for each reason, whatever the system says."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


class Refused(Exception):  # noqa: N818  it is an answer more than an error
    """Why a path was not opened. `reason` is one of REASONS, or denied, private, closed, is_a_directory, bad_path,
    unreadable, root_missing, root_outside; of a path to be written also is_a_link, busy, not_writable.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


REASONS = {
    errno.ENOENT: "not_found",
    errno.EILSEQ: "not_found",  # file systems that know only UTF-8 names
    errno.ENOTDIR: "not_a_directory",
    errno.ELOOP: "link_loop",
    errno.ENAMETOOLONG: "name_too_long",
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.ENXIO: "not_a_file",  # a socket, or a device that isn't there
    errno.ENODEV: "not_a_file",
}


@contextmanager
def refusals(reason: str | None = None, about: str | None = None, otherwise: str = "unreadable") -> Iterator[None]:
    """Turn whatever the system refuses into a Refused, with its own reason and words where none are given."""
    try:
        yield
    except OSError as error:
        raise Refused(reason or reason_for(error, otherwise), about or os.strerror(error.errno or 0)) from None


def reason_for(error: OSError, otherwise: str = "unreadable") -> str:
    return REASONS.get(error.errno or 0, otherwise)
