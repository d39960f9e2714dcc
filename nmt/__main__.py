"""`python -m nmt` is `nmt`: the command line as a process of its own, to its very end."""

import signal
import sys

INTERRUPTED = 128 + signal.SIGINT


def run() -> None:
    """Exits with the code of the command line. Signals that come before it can catch them, or after its work, make no noise."""
    code: int | str | None
    try:
        from nmt.cli import main

        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as end:
        code = end.code
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)  # Python's last words would be those of its own inside
    # Where Ctrl-C came in text compiled as it ran, by which dataclasses are made, Python keeps a mark, and `python -m` would end
    # itself by the signal, whatever the code; the next such text takes the mark away.
    exec("")
    sys.exit(code)


if __name__ == "__main__":
    run()
