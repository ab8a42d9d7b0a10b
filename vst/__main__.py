"""``python -m vst``: the help page at once, everything else by the application."""

import sys


def main() -> int:
    if {"--help", "-h"} & set(sys.argv[1:]):
        from vst.confdir import conf_dir
        from vst.help import page

        print(page(conf_dir()), end="")
        return 0
    from vst.app import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
