"""What is logged: one JSON object a line with the ids of what it is about, and nothing that is a secret."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from uuid import uuid4

import pytest
from pydantic import BaseModel, ValidationError

from arachne import logs

Said = Callable[[], list[dict[str, object]]]


@pytest.fixture
def restored() -> Iterator[None]:
    """Logging as it was before."""
    names = (None, *logs._CANDID)
    former = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers[:]) for name in names}
    yield
    logging.captureWarnings(capture=False)
    logs._told.clear()
    for name, (level, handlers) in former.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def stderr(restored: None, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What stands for stderr."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def said(stderr: io.StringIO) -> Said:
    """What was logged as JSON, at DEBUG."""
    logs.configure("DEBUG", "json")
    return lambda: [json.loads(line) for line in stderr.getvalue().splitlines()]


def test_records_are_json_with_the_bound_ids(said: Said) -> None:
    """Level, logger, UTC instant, message, extras, and the ids bound where it was made; None ones are left out."""
    with logs.bound(request_id="req_1", job_id="job_1", image_id=None):
        logging.getLogger("arachne.x").info("image %s", "read", extra={"ms": 3})
    logging.getLogger("arachne.x").info("later")
    first, later = said()
    first.pop("message", None)  # where another handler, such as that of pytest, has formatted the record before
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", str(first.pop("timestamp")))
    assert first == {
        "event": "image read", "level": "info", "logger": "arachne.x", "ms": 3,
        "request_id": "req_1", "job_id": "job_1",
    }  # fmt: skip
    assert "request_id" not in later


def test_texts_are_not_repeated_for_terminals(said: Said) -> None:
    """Uvicorn adds its own text once more, with colours and without what it is about."""
    coloured = {"color_message": "Started server process [\x1b[36m%d\x1b[0m]"}
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7, extra=coloured)
    [record] = said()
    assert record["event"] == "Started server process [7]"
    assert not any("\x1b" in str(value) for value in record.values())


def test_ids_stay_with_their_thread(said: Said) -> None:
    """What one thread binds is not another's."""
    with ThreadPoolExecutor(1) as threads, logs.bound(job_id="mine"):
        threads.submit(logging.getLogger("arachne.x").info, "elsewhere").result()
        logging.getLogger("arachne.x").info("here")
    assert [record.get("job_id") for record in said()] == [None, "mine"]


def test_text_for_people_is_one_line(stderr: io.StringIO) -> None:
    """Without colours where it is no terminal."""
    with redirect_stderr(stderr):  # pytest puts its own back between set-up and call
        logs.configure("INFO", "text")
    with logs.bound(job_id="job_1"):
        logging.getLogger("arachne.x").warning("the disk is %d%% full", 90)
    (line,) = stderr.getvalue().splitlines()
    assert "the disk is 90% full" in line
    assert "job_id=job_1" in line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    "name", ["sqlalchemy.engine.Engine", "httpx", "aiohttp.client", "PIL.Image", "python_multipart"]
)
def test_libraries_tell_from_warning_up_alone(said: Said, name: str) -> None:
    """Below it they tell rows, headers and addresses, also where we are told to log everything."""
    logging.getLogger(name).debug("a row")
    logging.getLogger(name).info("a header")
    logging.getLogger(name).warning("a fault")
    assert [record["event"] for record in said()] == ["a fault"]


SECRET = "hunter2-" + uuid4().hex


@pytest.mark.parametrize("key", sorted(logs._SECRET_KEYS))
def test_values_of_secret_keys_are_never_shown(said: Said, key: str) -> None:
    """Neither at the top nor further in, whatever their form."""
    logging.getLogger("arachne.x").info("x", extra={key: SECRET, "more": [{key.upper(): {"of": SECRET}}]})
    (record,) = said()
    assert SECRET not in json.dumps(record)
    assert record[key] == "***"


def test_queries_and_credentials_are_blotted_wherever_they_are(said: Said) -> None:
    """In messages, arguments, extras, and what exceptions say."""
    url = f"https://host.example/a.png?signature={SECRET}"
    log = logging.getLogger("arachne.x")
    log.info("fetched %s", url, extra={"at": [url], "of": Exception(url)})
    try:
        raise ValueError(f"Bearer {SECRET}")  # noqa: TRY301
    except ValueError:
        log.exception("failed")
    records = said()
    assert SECRET not in json.dumps(records)
    assert "https://host.example/a.png?***" in str(records[0]["event"])
    assert "ValueError" in str(records[1]["exception"])


@pytest.mark.parametrize(
    "form",
    [
        "authorization: bearer {}", "BASIC {}", "redis://:{}@host/0", "postgresql://name:p@{}@host/x", "ars_{}",
        "whsec_{}", "eyJhbGciOiJ.{}.{}",
    ],
)  # fmt: skip
def test_credentials_are_known_by_their_form(form: str) -> None:
    """In whatever case a scheme is written, and also passwords with an @."""
    assert SECRET not in logs.blot(f"it said {form.format(SECRET, SECRET)!r}")


def test_refused_input_is_not_quoted(said: Said) -> None:
    """Pydantic quotes what it refuses; its report is kept without."""

    class Model(BaseModel):
        number: int

    try:
        Model.model_validate({"number": SECRET})
    except ValidationError:
        logging.getLogger("arachne.x").exception("not acceptable")
    (record,) = said()
    assert "int_parsing" in str(record["exception"])
    assert SECRET not in json.dumps(record)


def test_processes_that_work_on_images_name_exceptions_alone() -> None:
    """Their exceptions may say words of the image; where it was raised and of which kind is logged."""
    script = (
        "import logging; from arachne import logs\n"
        "logs.configure('DEBUG', 'json'); logs.follow(logs.told(), quotes=False)\n"
        "try: {}['a word of the image']\n"
        "except KeyError: logging.getLogger('arachne.x').exception('the reader failed')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    record = json.loads(done.stderr)
    assert record["exception"].endswith("KeyError")
    assert 'File "<string>", line 3' in record["exception"]
    assert "a word" not in done.stderr


def test_the_command_line_answers_without_loading_the_log() -> None:
    """`arachne --help` is for people who wait."""
    script = "import sys, arachne.cli; print(sorted({'structlog', 'prometheus_client'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
