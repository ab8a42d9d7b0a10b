"""How long the commands take that run on a login node: ``python tests/bench/bench_help.py [repeats]``.

The aim for ``--help`` is less than 0.7 s on two idle cores.
"""

from __future__ import annotations

import subprocess
import sys
import time

COMMANDS = (("--help",), ("--cfg", "job", "--resolve"), ("model=modela",))


def seconds(*args: str) -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "vst", *args], capture_output=True, check=False)
    return time.monotonic() - begun


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for args in COMMANDS:
        taken = sorted(seconds(*args) for _ in range(repeats))
        print(f"{' '.join(args):<24} median {taken[repeats // 2]:.2f} s, best {taken[0]:.2f} s of {repeats}")


if __name__ == "__main__":
    main()
