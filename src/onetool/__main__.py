"""The command `onetool`, and `python -m onetool`."""

import gc
import os
import sys


def main() -> None:
    """Answer the cheapest question without loading anything; everything else is the command line's."""
    if sys.argv[1:] == ["--version"]:
        from onetool._version import __version__

        print(f"onetool {__version__}")
        return
    gc.set_threshold(150_000)  # starting up makes many objects and hardly any garbage
    try:
        _import_msgspec()
        from onetool.interfaces.cli import main

        main()
    except KeyboardInterrupt:  # so early that the command line could not yet catch it
        sys.exit(130)
    finally:
        # The interpreter's last collections would walk over everything once more: a fifth of a short command.
        gc.freeze()


def _import_msgspec() -> None:
    """Import it without typing_extensions, where that is installed: msgspec takes from there what Python has itself
    since 3.11, and does without it. Loading it takes 4 % of a short command.
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
    except OSError:  # it is gone
        return
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and sys.path[0] in ("", here) and ours != here:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_this_folder()
    main()
