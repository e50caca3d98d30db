"""The command `onetool`, and `python -m onetool`."""

import sys


def main() -> None:
    """Answer the cheapest question without loading anything; everything else is the command line's."""
    if sys.argv[1:] == ["--version"]:
        from onetool import __version__

        print(f"onetool {__version__}")
        return
    from onetool.interfaces.cli.main import run

    run()


if __name__ == "__main__":
    main()
