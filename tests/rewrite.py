"""`python -m tests.rewrite SHARE SHARES`: rewrite the asserts of one share of the test files, where pytest keeps them.

Every worker of pytest reads every test file. On a fresh checkout each of them would also rewrite every file, which is
15 seconds of computing. Here each file is rewritten once. What is missing or cannot be written, pytest makes itself.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from _pytest.assertion import rewrite


def main(share: int, shares: int) -> None:
    tests = Path(__file__).parent.resolve()
    files = sorted(path for name in ("test_*.py", "conftest.py") for path in tests.rglob(name))
    for file in files[share::shares]:
        with suppress(OSError, SyntaxError, RecursionError):
            _keep(file)


def _keep(file: Path) -> None:
    folder = rewrite.get_cache_dir(file)
    kept = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, kept) is not None:
        return
    source_hash, code = rewrite._rewrite_test(file, None)
    folder.mkdir(exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as written:
        rewrite._write_pyc_fp(written, source_hash, code)
    unfinished.replace(kept)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
