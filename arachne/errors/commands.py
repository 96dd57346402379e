"""What an operator has to mend: a file given to a command, or the machine and its settings."""

from arachne.errors.root import ArachneError


class FileRejected(ArachneError):
    """A file given to a command is damaged or foreign; nothing of it was taken."""

    code, title = "file_rejected", "File rejected"


class OutputLost(ArachneError):
    """What a command prints can't be written; `is_closed`: whoever read it wants no more, as `head` does."""

    code, title = "output_lost", "Output lost"

    def __init__(self, message: str, *, is_closed: bool) -> None:
        super().__init__(message)
        self.is_closed = is_closed


class SetupError(ArachneError):
    """This machine or its settings need mending; the message says how."""

    code, title = "setup", "Set-up error"
