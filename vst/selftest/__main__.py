"""``python -m vst.selftest``: start one scripted server and serve until the process is ended."""

from __future__ import annotations

import os
import sys

from vst.errors import VstError
from vst.selftest.double import SAYS
from vst.selftest.fault import to_json
from vst.selftest.options import check_backend, read


def main(argv: list[str]) -> int:
    """Load the checkpoint, then listen: the port answers only when everything is there."""
    # One thread for each operation: a double shares its machine with the run that looks at it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        options = read(argv)
        check_backend(options)
        from vst.selftest.checkpoint import load
        from vst.selftest.double_server import Double, exit_soon
        from vst.selftest.serving import Server

        server = Server((options.host, options.port), Double(options, load(options.model), exit_soon))
    except VstError as error:
        print(f"vst.selftest: {error}", file=sys.stderr)
        return 2
    print(f"{SAYS}; faults: {[to_json(fault) for fault in options.faults]}", flush=True)
    server.serve_forever(poll_interval=0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
