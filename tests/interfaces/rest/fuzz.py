"""schemathesis over /openapi.json: all checks, all phases, in front of real files. `make fuzz ARGS="--max-time 600"`.

The model that it asks is a stand-in.

Its options are schemathesis's own. What it finds is printed with the request that shows it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .served import TOKEN, Api, with_model

SHORT = Path(__file__).with_name("fuzz_short.toml")
HOOKS = Path(__file__).with_name("fuzz_hooks.py")


def fuzz(url, folder, *options, config=None, seconds=None, quiet=True):
    """Run it against a server; its exit code and what it said, if it was to be quiet."""
    before = ["--config-file", str(config)] if config else []
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", *before, "run", f"{url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {TOKEN}"]
    done = subprocess.run(
        [*command, "--checks", "all", "--generation-database", "none", "--request-timeout", "20", *options],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS.stem, "PYTHONPATH": str(HOOKS.parent), "HOME": str(folder)},
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout


def main():
    sys.path.insert(0, str(Path(__file__).parents[2]))  # of the tests
    from ask.stand_in import StandIn

    with tempfile.TemporaryDirectory() as folder, StandIn(keys=False) as model:
        api = Api(real=folder, env=with_model(Path(folder), model, http={"token": TOKEN}))
        try:
            code, _ = fuzz(api.url, folder, *(sys.argv[1:] or ["--max-time", "300"]), quiet=False)
        finally:
            api.stop()
    sys.exit(code)


if __name__ == "__main__":
    main()
