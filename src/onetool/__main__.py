"""The command `onetool`, and `python -m onetool`."""

import gc
import os
import sys


def main() -> None:
    """Answer `--version` without loading anything, and pass everything else to the command line."""
    if sys.argv[1:] == ["--version"]:
        from onetool._version import __version__

        print(f"onetool {__version__}")
        return
    gc.set_threshold(150_000)  # startup creates many objects and hardly any garbage
    try:
        _import_msgspec()
        from onetool.interfaces.cli import main

        main()
    except KeyboardInterrupt:  # before the command line can catch it
        sys.exit(130)
    finally:
        # The interpreter's last collections would traverse everything again: a fifth of a short command's time.
        gc.freeze()


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, even if that is installed: msgspec works without it since Python 3.11,
    and loading it takes 4 % of a short command's time.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # pyright: ignore[reportArgumentType] - an import of it fails
    try:
        import msgspec  # noqa: F401  # pyright: ignore[reportUnusedImport]
    finally:
        del sys.modules[name]


def _leave_out_this_folder() -> None:
    """Remove the current folder from sys.path, which `python -m` puts first: a file there could replace a library."""
    try:
        here = os.getcwd()
    except OSError:  # the folder was deleted
        return
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and sys.path[0] in ("", here) and ours != here:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_this_folder()
    main()
