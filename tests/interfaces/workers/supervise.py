"""A supervisor of workers that a test chooses: `python supervise.py COUNT CONFIG IN_TURN_S [PROGRAM …]`.

It prints the greeting, and at the end what was wrong.
"""

import logging
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    from onetool.interfaces.http.listen import listen, resolve
    from onetool.interfaces.workers import WorkerOrder, supervisor

    count, config, in_turn, *program = sys.argv[1:]
    supervisor.PROGRAM = tuple(program) or supervisor.PROGRAM
    supervisor.FIRST_PAUSE_S = 0.001  # people get longer ones
    supervisor.IN_TURN_S = float(in_turn)
    logging.basicConfig(level=logging.INFO)
    address = listen("127.0.0.1", 0, resolve("127.0.0.1"))
    order = WorkerOrder(
        number=1,
        count=int(count),
        config=config,
        host=address.host,
        port=address.port,
        addresses=address.addresses,
    )
    try:
        print("stopped by", supervisor.Supervisor(order, address, lambda line: print(line, flush=True)).run())
    except supervisor.WorkersFailedError as error:
        print(error, error.exit_code)
