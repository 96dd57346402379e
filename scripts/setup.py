"""Makes the checkout's `.venv` with what the locks pin; does nothing where that is done.

`--no-dev` leaves out what only tests and checks need, which is half of it; what is there stays. Runs under any bare
Python >= 3.11, so it uses the standard library only. Several may run at once: one works, the others wait for it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".arachne-setup"
RUNNING = ("requirements.lock",)
ALL = (*RUNNING, "requirements-dev.lock")
SETUP_STATUS, INTERRUPTED_STATUS = 3, 130
APT_HINT = "sudo apt-get install python3-venv"


class SetupError(Exception):
    """The environment can't be made; the message says how to mend that."""


def main() -> int:
    """Exit status: 0, or 3 or 130 with one sentence on stderr."""
    locks = RUNNING if "--no-dev" in sys.argv[1:] else ALL
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another set-up of this checkout is running; waiting for it.")
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        if not is_done(locks):
            set_up(locks)
    except (SetupError, OSError) as error:
        say(str(error))
        return SETUP_STATUS
    except KeyboardInterrupt:
        say("Interrupted. The next start goes on.")
        return INTERRUPTED_STATUS
    finally:
        os.close(folder)
    return 0


def is_done(locks: tuple[str, ...]) -> bool:
    """Whether `.venv` was made here from these very locks, or all, and still has a Python that starts."""
    try:
        return STAMP.read_text() in {fingerprint(locks), fingerprint(ALL)} and starts(PYTHON)
    except OSError:
        return False


def fingerprint(locks: tuple[str, ...]) -> str:
    """Changes when the environment must be made anew or brought up to date."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in (*locks, "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def starts(python: Path) -> bool:
    """Whether this interpreter runs, is new enough, and belongs to the environment's present place.

    Raises:
        SetupError: that can't be told, as the machine is too busy.
    """
    check = "import sys; print(sys.prefix if sys.version_info >= (3, 11) else '')"
    try:
        done = subprocess.run([python, "-I", "-c", check], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return False
    except subprocess.TimeoutExpired:
        raise SetupError(f"{python} does not start within a minute. Try again on a less busy machine.") from None
    return done.stdout.strip() == str(VENV)


def set_up(locks: tuple[str, ...]) -> None:
    """`.venv` holds the packages of these locks and this project, editable.

    Raises:
        SetupError: it can't be made.
    """
    say("Setting up .venv with the pinned packages; the first time takes a minute or two.")
    STAMP.unlink(missing_ok=True)
    if not starts(PYTHON):
        shutil.rmtree(VENV, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", VENV], check=False)
        if made.returncode:
            raise SetupError(f"{VENV} could not be made; the lines above say why. Then try again.")
    installer = find_installer()
    install(installer, ["--require-hashes", *(f"--requirement={ROOT / lock}" for lock in locks)])
    install(installer, ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    STAMP.write_text(fingerprint(locks))


def find_installer() -> list[str]:
    """The words before `install`'s own arguments: a pip for `.venv`, wherever there is one.

    Raises:
        SetupError: there is none.
    """
    if find_spec("ensurepip") and runs([str(PYTHON), "-I", "-m", "ensurepip"]):
        return [str(PYTHON), "-I", "-m", "pip", "install"]
    if runs([str(PYTHON), "-I", "-m", "pip", "--version"]):  # made by another tool, with its own pip
        return [str(PYTHON), "-I", "-m", "pip", "install"]
    for python in (sys.executable, "/usr/bin/python3", "python3"):  # Debian: python3-pip without python3-venv
        if runs([python, "-m", "pip", "--python", str(PYTHON), "--version"]):
            return [python, "-m", "pip", "--python", str(PYTHON), "install"]
    for wheel in sorted(Path("/usr/share/python-wheels").glob("pip-*.whl")):
        if runs([str(PYTHON), f"{wheel}/pip", "--version"]):
            return [str(PYTHON), f"{wheel}/pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", str(PYTHON)]
    raise SetupError(f"This Python has neither ensurepip nor pip. Run `{APT_HINT}` (or install uv), then try again.")


def runs(command: list[str]) -> bool:
    """Whether `command` ends well."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def install(installer: list[str], arguments: list[str]) -> None:
    """The packages are installed.

    Raises:
        SetupError: they are not; the installer's own last lines say why.
    """
    options = ["--quiet"] if installer[0].endswith("uv") else ["--disable-pip-version-check", "--progress-bar=off"]
    env = os.environ | {"PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore", "PYTHONWARNINGS": "ignore"}
    env |= {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"} if not has_writable_cache() else {}
    command = [*installer, *options, *arguments]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=ROOT
    ) as process:
        assert process.stdout
        said = watch(process.stdout)
    if process.returncode:
        tail = "".join(said[-15:]).strip()
        raise SetupError(f"{tail}\nThe packages could not be installed; the lines above say why. Then try again.")


def watch(lines: Iterable[str]) -> list[str]:
    """What the installer said; a terminal shows meanwhile how far it is."""
    said, found = [], 0
    try:
        for line in lines:
            said.append(line)
            if line.startswith(("Collecting ", "Processing ")):
                found += 1
                hint(f"  {found} packages found")
            elif found and line.startswith("Installing "):
                hint(f"  {found} packages found, installing them")
    finally:
        hint("")
    return said


def hint(text: str) -> None:
    """A passing remark, in the place of the last one."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def has_writable_cache() -> bool:
    """Whether installers may keep what they download, for the next time."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "")
    return Path(home).is_dir() and os.access(home, os.W_OK)


def say(line: str) -> None:
    """A remark on stderr; stdout is for data."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
