"""`scripts/setup.py`: which packages `scripts/run` and the others ask for, and when nothing is to be done."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


@pytest.mark.processes
@pytest.mark.parametrize(("script", "options"), [("run", "['--no-dev']"), ("test", "[]")])
def test_showing_the_service_takes_no_tools_of_development(tmp_path: Path, script: str, options: str) -> None:
    """`scripts/run` asks for what runs the service alone, `scripts/test` for all."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name in (script, "python.sh"):
        shutil.copy(SCRIPTS / name, folder)
    (folder / "setup.py").write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    done = subprocess.run([folder / script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (options, 3)


def load() -> ModuleType:
    """The module."""
    spec = importlib.util.spec_from_file_location("checkout_setup", SCRIPTS / "setup.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, in a checkout of its own whose Python starts."""
    module = load()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(module, "starts", lambda _: True)
    for name in (*module.ALL, "pyproject.toml"):
        (tmp_path / name).write_text(name)
    return module


def test_all_packages_are_enough_for_everything_and_the_half_is_not(setup: ModuleType) -> None:
    """After `scripts/test` there is nothing to do for `scripts/run`, but the other way round there is."""
    assert not setup.is_done(setup.RUNNING)
    setup.STAMP.write_text(setup.fingerprint(setup.RUNNING))
    assert setup.is_done(setup.RUNNING)
    assert not setup.is_done(setup.ALL)
    setup.STAMP.write_text(setup.fingerprint(setup.ALL))
    assert setup.is_done(setup.RUNNING)
    assert setup.is_done(setup.ALL)


@pytest.mark.parametrize(("changed", "again"), [("requirements.lock", True), ("requirements-dev.lock", False)])
def test_what_a_lock_pins_anew_is_installed(setup: ModuleType, changed: str, again: bool) -> None:
    """A change of a lock that isn't used costs nothing."""
    setup.STAMP.write_text(setup.fingerprint(setup.RUNNING))
    (setup.ROOT / changed).write_text("changed")
    assert setup.is_done(setup.RUNNING) is not again


def test_an_interrupted_set_up_says_so(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, with the shell's own exit code for it, and is gone on with the next time."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "set_up", interrupt)
    assert setup.main() == 130
    assert capsys.readouterr().err == "Interrupted. The next start goes on.\n"
    assert not setup.STAMP.exists()


def test_an_environment_that_can_not_be_made_is_told(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence after what the program that makes it said, and with the exit code for it."""
    monkeypatch.setattr(setup, "starts", lambda _: False)
    monkeypatch.setattr(setup, "VENV", setup.ROOT / ".venv")
    monkeypatch.setattr(setup.sys, "executable", "false")
    assert setup.main() == setup.SETUP_STATUS
    assert capsys.readouterr().err.splitlines()[-1].endswith("say why. Then try again.")


def test_a_busy_machine_costs_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose Python doesn't start in time is not taken for broken, and made anew."""

    def start(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    module = load()
    monkeypatch.setattr(module.subprocess, "run", start)
    with pytest.raises(module.SetupError, match="less busy"):
        module.starts(Path("python"))


_PIP = """print('Collecting a==1')
print('Processing /wheels/b-2-py3-none-any.whl')
print('Installing collected packages: a, b')
import sys
sys.exit('ERROR: no space left')"""


def test_a_terminal_shows_how_far_the_installer_is(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of it stays there; what the installer said last is told where it fails."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with pytest.raises(setup.SetupError, match=r"no space left\nThe packages could not be installed"):
        setup.install([sys.executable, "-u", "-c", _PIP], [])
    shown = capsys.readouterr().err
    hints = ["  1 packages found", "  2 packages found", "  2 packages found, installing them", ""]
    assert shown == "".join(f"\r\033[K{one}" for one in hints)


def test_where_nobody_watches_nothing_passes_by(setup: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    setup.install([sys.executable, "-c", "print('Collecting a==1')"], [])
    assert capsys.readouterr() == ("", "")
