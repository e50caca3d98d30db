"""`onetool serve` as one of several workers, but with an address of its own."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    from onetool.__main__ import main
    from onetool.interfaces.http import serve

    real = serve.serve_app

    def serve_app(*args, **options):
        return real(*args, **options | {"worker_secret": b"of all"})

    serve.serve_app = serve_app
    main()
