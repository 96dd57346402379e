"""`arachne extract --local`: images in, documents out, each by itself; reasons on stderr, data alone on stdout."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pypdfium2
import pytest
from PIL import Image

from arachne import cli
from arachne.cli import extract_local
from arachne.cli.extract_inputs import find_images
from arachne.schemas.result import Result
from tests.actors.stage_faults import read_or_fail

pytestmark = pytest.mark.processes

Run = Callable[..., tuple[int, str, str]]
FAST = ("extract", "--local", "--detail-level", "fast")
START_S = 60


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    """Runs `arachne …` in this process: exit code, stdout, stderr. One subprocess reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARACHNE_CPU_WORKERS", "1")

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["arachne", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capfdbinary.readouterr()
        return int(ended.value.code or 0), printed.out.decode(), printed.err.decode()

    return run


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that gives a file's bytes as its text, and fails as the bytes say."""
    monkeypatch.setattr(extract_local, "read_image", read_or_fail)


def test_one_file_gives_its_result_alone(run: Run, images: Path, tmp_path: Path) -> None:
    """The same JSON that the API answers with, and no folder left behind where the command ran."""
    code, out, err = run(*FAST, images / "dialog_light.png")
    assert (code, err) == (0, "")
    result = Result.model_validate_json(out)
    expected = set((images / "dialog_light.txt").read_text().split())
    assert len(expected & set((result.text or "").split())) > 0.9 * len(expected)
    assert result.stages[-1].status == "skipped"
    assert list(tmp_path.iterdir()) == []


def test_documents_of_all_frames(run: Run, images: Path, tmp_path: Path) -> None:
    """A two-page TIFF: both pages are in the PDF with their words."""
    with Image.open(images / "dialog_light.png") as picture:
        page = picture.convert("RGB").crop((0, 0, 560, 80))
    page.save(tmp_path / "scan.tiff", save_all=True, append_images=[page])
    assert run(*FAST, "scan.tiff", "--frames", "all", "--format", "pdf", "--out", "made")[0] == 0
    document = pypdfium2.PdfDocument(tmp_path / "made" / "scan.pdf")
    texts = [page.get_textpage().get_text_range() for page in document]
    document.close()
    assert [text.strip() for text in texts] == ["Save changes before closing?"] * 2


@pytest.mark.usefixtures("instead")
def test_a_failing_file_costs_no_other(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order given, a line of JSON each; exit code 1, and each reason on a line of stderr."""
    monkeypatch.setenv("ARACHNE_MAX_IMAGE_BYTES", "100")
    for name, content in {"a.png": b"first", "crash.png": b"crash", "big.png": bytes(200), "z.png": b"last"}.items():
        (tmp_path / name).write_bytes(content)
    code, out, err = run(
        *FAST, "a.png", "crash.png", "big.png", "missing.png", "no*.png", "https://x.example/y", "z.png"
    )
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [line["file"] for line in lines] == [
        *("a.png", "crash.png", "big.png", "missing.png", "no*.png", "https://x.example/y", "z.png")
    ]
    assert [line.get("text") or line["error"]["code"] for line in lines] == [
        *("first", "worker_crashed", "image_too_large", "not_found", "not_found", "invalid_options", "last")
    ]
    assert len(err.splitlines()) == 5
    assert "arachne: crash.png: worker_crashed: " in err


@pytest.mark.usefixtures("instead")
def test_a_list_gives_lines_however_many_it_names(run: Run, tmp_path: Path) -> None:
    """Whoever reads them can't know that one file alone was found."""
    (tmp_path / "a.png").write_bytes(b"first")
    (tmp_path / "list").write_text("a.png\n")
    code, out, _ = run(*FAST, "--from-file", "list")
    [line] = [json.loads(one) for one in out.splitlines()]
    assert (code, line["file"], line["text"]) == (0, "a.png", "first")
    assert run(*FAST, "--from-file", "list", "--format", "pdf")[0] == 2


@pytest.mark.usefixtures("instead")
def test_texts_are_parted_by_form_feeds(run: Run, tmp_path: Path) -> None:
    """One that failed leaves its place empty, so that the n-th text is the n-th file's."""
    for name, content in {"a.png": b"first", "b.png": b"decode", "c.png": b"last"}.items():
        (tmp_path / name).write_bytes(content)
    code, out, _ = run(*FAST, "a.png", "missing.png", "c.png", "--format", "txt")
    assert (code, out) == (1, "first\n\f\flast\n")


@pytest.mark.usefixtures("instead")
def test_no_file_is_lost_to_another(run: Run, tmp_path: Path) -> None:
    """Inputs of one name, names that differ in case, results from before, and inputs inside the folder itself."""
    for name in ("one/x.png", "two/x.jpg", "three/X.gif", "out/x.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    given = ("one/x.png", "two/x.jpg", "three", "--out", "out")
    assert run(*FAST, *given)[:2] == (0, "")
    made = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert made.pop("x.json") == "out/x.json"
    told = {name: json.loads(text)["text"] for name, text in made.items()}
    assert told == {"x-2.json": "one/x.png", "x-3.json": "two/x.jpg", "X.json": "three/X.gif"}
    assert run(*FAST, "one/x.png", "out/x.json", "--out", "out", "--overwrite")[0] == 0
    assert (tmp_path / "out" / "x.json").read_text() == "out/x.json"
    assert json.loads((tmp_path / "out" / "x-2.json").read_text())["text"] == "one/x.png"


def test_wrong_usage_is_told_before_anything_is_read(run: Run, images: Path, tmp_path: Path) -> None:
    """Exit code 2 and an empty stdout; options that can't be carried out here: 1, and a folder that can't be: 3."""
    picture = images / "chat.png"
    for words in (
        ("extract",),
        ("extract", "-", "--from-file", "-"),
        ("extract", picture, "--metadata", "no pair"),
        ("extract", picture, "--metadata", f"{'k' * 41}=v"),
        ("extract", picture, "--metadata", "a=b", "--metadata", "a=c"),
        ("usage", "--csv", "--json"),
        ("usage", "statement", "--csv", "--json"),
        ("extract", picture, "--prompt", "p" * 2001),
        (*FAST, picture, "--no-wait"),
        (*FAST, picture, "--metadata", "a=b"),
        ("extract", picture, "--data-dir", "."),
        (*FAST, picture, "--model", "m", "--cache", "refresh"),
        (*FAST,),
        (*FAST, picture, "--format", "docx"),
        (*FAST, picture, "--stages", "read,think"),
        (*FAST, picture, "--languages", "no such"),
        (*FAST, picture, picture.with_name("dialog_light.png"), "--format", "pdf"),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, ""), words
        assert err
    code, out, err = run(*FAST, picture, "--languages", "eng+xyz")
    assert (code, out) == (1, "")
    assert "xyz" in err
    (tmp_path / "file").touch()
    assert run(*FAST, picture, "--out", "file")[:2] == (3, "")


def test_folders_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images in folders in order, hidden ones and the folder for results left out; each path once."""
    for name in (
        "in/b.PNG",
        "in/a.jpeg",
        "in/deep/c.webp",
        "in/notes.txt",
        "in/.hidden.png",
        "in/out/old.png",
        "d[1].png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    found = [one.name for one in find_images(["in", "in/*.PNG", "d[1].png", "in/**/*.webp"], apart_from=Path("in/out"))]
    assert found == ["in/a.jpeg", "in/b.PNG", "in/deep/c.webp", "d[1].png"]
    (tmp_path / "empty").mkdir()
    assert [one.error.code for one in find_images(["empty", "*.tiff"]) if one.error] == ["not_found", "not_found"]


def _drain(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 1000):
            pass


def test_progress_is_for_terminals_and_ctrl_c_ends_everything(images: Path, tmp_path: Path) -> None:
    """A bar on stderr where that is a terminal, and nothing on stdout; then exit code 130 and no process left."""
    (tmp_path / "hang.png").write_bytes(b"hang")
    code = (
        # Whoever runs the tests in the background has SIGINT ignored, and children inherit that.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from arachne import cli; from arachne.cli import extract_local; "
        "from tests.actors.stage_faults import read_or_fail; extract_local.read_image = read_or_fail; "
        f"sys.argv = ['arachne', *{FAST}, {str(tmp_path / 'hang.png')!r}]; cli.main()"
    )
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "ARACHNE_CPU_WORKERS": "1", "PYTHONPATH": str(images.parent.parent)}
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, env=environment)
    os.close(slave)
    try:
        shown = b""
        while b"reading" not in shown:
            shown += os.read(master, 1000)
        deadline = time.monotonic() + START_S
        while not (children := psutil.Process(started.pid).children(recursive=True)) and time.monotonic() < deadline:
            time.sleep(0.05)
        # Nobody reads a test's terminal, and a full one would hold the bar's writer up.
        threading.Thread(target=_drain, args=(master,), daemon=True).start()
        started.send_signal(signal.SIGINT)
        out, _ = started.communicate(timeout=START_S)
    finally:
        started.kill()
        started.wait()
        os.close(master)
    assert (started.returncode, out) == (130, b"")
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_an_empty_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a variable that is not set: nothing of the working folder is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").touch()
    [one] = find_images([""])
    assert one.error is not None
    assert one.error.code == "not_found"


def test_names_do_not_drive_the_terminal(run: Run, tmp_path: Path) -> None:
    """Control characters of a file's name are written out in what is said of it."""
    (tmp_path / "a\x1b]0;x\x07\n.png").write_bytes(b"no image")
    code, _, err = run(*FAST, tmp_path)
    assert (code, len(err.splitlines()), "\x1b" in err) == (1, 1, False)
