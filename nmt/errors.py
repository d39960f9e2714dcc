"""What can go wrong through no fault of ours. `cli.py` turns each into one line on stderr and an exit code."""


class NmtError(Exception):
    """Work that cannot go on: a file, its content, or the machine. The message names the file, the line and what to do. Exit 1."""


class NotNumbersError(NmtError):
    """A network whose probabilities are not numbers: who knows where it comes from can say more."""


class OneOfManyError(NmtError):
    """What went wrong in one of several processes, with its number: no other one can tell it."""


class NewerError(NmtError):
    """What a newer nmt made: whatever else is there, it is not to be written over."""


class WriteError(NmtError):
    """A place that cannot be written: no room, no permission, or no longer there. Who knows how to go on later can say more."""


class UsageError(NmtError):
    """Wrong usage: an unknown option or key, an impossible value, options that exclude each other. Exit 2."""
