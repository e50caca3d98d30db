"""`onetool` as one of several: what `serve` shares with the others comes from the environment.

MEMBER_DATABASE=/path/to.db MEMBER_PLACE=a MEMBER_KEY=… python member.py serve --port 0
"""

import os
import sys
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    from onetool.__main__ import main
    from onetool.cluster import ClusterSettings
    from onetool.database.sqlite import SqliteDatabase
    from onetool.interfaces.http import serve

    settings = ClusterSettings(
        os.environ["MEMBER_PLACE"],
        os.environ["MEMBER_KEY"].encode(),
        SqliteDatabase(Path(os.environ["MEMBER_DATABASE"])),
        finish_s=float(os.environ.get("MEMBER_FINISH_S", "0")),
    )
    serve.serve_app = partial(serve.serve_app, cluster=settings)
    main()
