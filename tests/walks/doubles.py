"""Scripted servers in this process: one for each walk, there in moments and gone without a trace."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vst.selftest.checkpoint import load
from vst.selftest.double_server import Double
from vst.selftest.fault import to_json
from vst.selftest.options import read
from vst.selftest.serving import Server


@contextmanager
def double(model: Path, *faults: Any) -> Iterator[str]:
    """The address of a double that serves ``model`` with these faults."""
    flags = ["--model", str(model), "--served-model-name", "tiny", "--port", "0", "--enable-prompt-tokens-details"]
    sizes = ["--weights-mib", "1", "--kv-mib", "1"]
    options = read([*flags, *sizes, *(part for fault in faults for part in ("--fault", _text(fault)))])
    server = Server((options.host, 0), Double(options, load(options.model), lambda reason: None))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def _text(fault: Any) -> str:
    return json.dumps(to_json(fault))
