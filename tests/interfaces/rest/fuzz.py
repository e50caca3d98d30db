"""schemathesis over /openapi.json: all checks, all phases, in front of real files. `make fuzz ARGS="--max-time 600"`.

Its options are schemathesis's own. What it finds is printed with the request that shows it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOOKS = Path(__file__).with_name("fuzz_hooks.py")
MINUTES = 10


def fuzz(url, folder, *options, seconds=MINUTES * 60):
    """Run it against a server; its exit code and what it said."""
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{url}/openapi.json", "--checks", "all"]
    done = subprocess.run(
        [*command, "--generation-database", "none", "--request-timeout", "20", *options],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS.stem, "PYTHONPATH": str(HOOKS.parent), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def main():
    from tests.interfaces.rest.served import Api

    with tempfile.TemporaryDirectory() as folder:
        api = Api(real=folder)
        try:
            code, said = fuzz(api.url, folder, *(sys.argv[1:] or ["--max-time", "300"]), seconds=24 * 3600)
        finally:
            api.stop()
    print(said)
    sys.exit(code)


if __name__ == "__main__":
    main()
