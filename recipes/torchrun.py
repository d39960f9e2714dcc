"""torchrun, which ends as its processes do: with their exit code, and without a traceback of its own over what they said last."""

import logging
import signal
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

if __name__ == "__main__":
    logging.disable()  # it would repeat at length what the processes say themselves
    try:
        main()
    except SignalException as stop:
        sys.exit(128 + stop.sigval)
    except ChildFailedError as failed:
        code = failed.get_first_failure()[1].exitcode
        if code < 0:  # it had no time for words
            print(f"torchrun: error: a process was ended by {signal.Signals(-code).name}", file=sys.stderr)
        sys.exit(128 - code if code < 0 else code)
