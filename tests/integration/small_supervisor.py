"""The real supervisor in a process of its own: ``small_supervisor COUNT COMMAND... --ready-file F``."""

import asyncio
import os
import sys
from pathlib import Path

from gateway.errors import GatewayError
from gateway.observe.logging import configure_logging
from gateway.processes.listening import bound, url_of
from gateway.processes.readyfile import write_ready_file
from gateway.processes.supervisor import Supervisor


def main() -> int:
    count, *command, _, ready_file = sys.argv[1:]
    configure_logging("info")
    with bound("127.0.0.1", 0) as listener:
        ready = {"base_url": url_of(listener), "data_dir": str(Path(ready_file).parent / "data")}
        supervisor = Supervisor(
            command,
            listener,
            int(count),
            environment=os.environ,
            stop_cap_s=60,
            back_off_s=(0.1, 0.5),
        )
        return asyncio.run(supervisor.run(lambda: write_ready_file(Path(ready_file), ready)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GatewayError as error:
        sys.exit(f"{error.code}: {error.detail}")
