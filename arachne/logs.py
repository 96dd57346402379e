"""One record a line on stderr, as JSON where that is no terminal, with ids threaded through and secrets blotted out.

Modules log through `logging`; `bound` gives every record made inside the ids of what it is about. Libraries go the same
way, from WARNING up: below that, some tell rows, headers and bodies.
"""

import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple, TextIO

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["auto", "json", "text"]

_CREDENTIALS = re.compile(
    r"(?P<bearer>\b(?i:bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # a JWT
    r"|ars_[\w-]{16,}"  # a client secret
    r"|wh(?:sec|sk)_[\w+/=-]{8,}"
    r"|(?P<url>://[^\s/:@]*:)[^\s/]+(?=@)"  # a password in a URL
    r"|(?P<query>://[^\s?\"'<>]+\?)[^\s\"'<>]+"
    r"|(?P<input>\binput_value=).*(?=, input_type=)"  # pydantic quotes what it refuses
)
_SECRET_KEYS = frozenset(
    {
        "access_token", "api_key", "assertion", "authorization", "body", "client_secret", "cookie", "credentials",
        "headers", "markdown", "metadata", "password", "prompt", "result", "result_json", "secret", "secret_key",
        "set-cookie", "signature", "text", "token",
    }
)  # fmt: skip
_CANDID = ("arachne", "uvicorn", "dramatiq", "alembic.runtime.migration")  # tell nothing of what passes through them
_BLOTTED = "***"


class LogForm(NamedTuple):
    """How a process logs: from `level` up, as JSON or for people; exceptions in full or by their kind alone."""

    level: str
    as_json: bool
    quotes: bool = True


class _Stderr(logging.StreamHandler[TextIO]):
    """The one handler of ours."""


_told: list[LogForm] = []


def blot(text: str) -> str:
    """`text` without tokens, signing secrets, passwords and queries in URLs, and refused inputs."""
    return _CREDENTIALS.sub(lambda found: next(filter(None, found.groups()), "") + _BLOTTED, text)


def configure(level: str, form: LogFormat = "auto") -> None:
    """All logging of this process goes to stderr: ours from `level` up, libraries' from WARNING up."""
    follow(LogForm(level, form == "json" or (form == "auto" and not sys.stderr.isatty())))


def told() -> LogForm | None:
    """How this process was told to log, for its subprocesses to `follow`; None if it was not."""
    return _told[-1] if _told else None


def follow(form: LogForm | None, *, quotes: bool = True) -> None:
    """Log as another process does; without a form nothing is changed.

    Not `quotes` is for processes that work on an image: what their exceptions say may hold words of it.
    """
    if form is None:
        return
    form = form._replace(quotes=quotes)
    _told[:] = [form]
    root, handler = logging.getLogger(), _Stderr(sys.stderr)
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=_CONTEXT, processors=_rendering(form)))
    root.handlers[:] = [*(one for one in root.handlers if not isinstance(one, _Stderr)), handler]
    root.setLevel(max(logging.WARNING, logging.getLevelName(form.level)))
    for name in _CANDID:
        logging.getLogger(name).setLevel(form.level)
    logging.captureWarnings(capture=True)


@contextmanager
def bound(**ids: str | None) -> Iterator[None]:
    """Every record made inside, by this thread or task, carries these ids; None ones are left out."""
    with structlog.contextvars.bound_contextvars(**{name: value for name, value in ids.items() if value is not None}):
        yield


def bound_ids() -> dict[str, str]:
    """The ids bound here, to be bound elsewhere too."""
    return structlog.contextvars.get_contextvars()


def _redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The record without what its keys or its texts say is a secret."""
    return {str(key): _blotted(str(key), value) for key, value in event.items()}


def _blotted(key: str, value: object) -> object:
    if key.lower() in _SECRET_KEYS:
        return _BLOTTED
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _blotted(str(name), one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_blotted("", one) for one in value]
    return blot(value if isinstance(value, str) else repr(value))


def _drop_repetition(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The record without uvicorn's second copy of its text, unfilled and coloured."""
    event.pop("color_message", None)
    return event


_CONTEXT: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    add_log_level,
    add_logger_name,
    ExtraAdder(),
    _drop_repetition,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
]


def _rendering(form: LogForm) -> list[Processor]:
    shown: Processor = structlog.processors.JSONRenderer() if form.as_json else _for_people()
    told: Processor = structlog.processors.format_exc_info if form.quotes else _name_exception
    return [ProcessorFormatter.remove_processors_meta, told, _redact, shown]


def _name_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The record with where an exception was raised and of which kind it is."""
    found = event.pop("exc_info", None)
    if found:
        kind, _, frames = found
        event["exception"] = "".join(traceback.format_tb(frames)) + kind.__name__
    return event


def _for_people() -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
