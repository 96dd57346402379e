"""A reader who types a page's examples, one after the other, into one shell on a machine with the service."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.documents.fences import ROOT, Fence
from tests.machines.waiting import eventually

TIMEOUT_S = 120
STATUS = re.compile(r"<HTTP (\d{3})>")
# Variables and functions live on in the next example, as they do in a terminal; `-e` and `-u` are the test's own.
_SHELL = """set -eu -o pipefail
. "$READER_STATE"
cd "$(cat "$READER_PLACE")"
remember() {
    local name line
    for name in $(compgen -v); do
        case $name in BASH_* | READER_* | PIPESTATUS | name | line | _) continue ;; esac
        line=$(declare -p "$name" 2>/dev/null) || continue
        case $line in 'declare -- '*=* | 'declare -x '*=*) printf '%s\\n' "$line" ;; esac
    done >"$READER_STATE"
    declare -f | sed '/^remember ()/,/^}/d' >>"$READER_STATE"
    pwd >"$READER_PLACE"
}
trap remember EXIT
"""
_CURL = """#!/bin/sh
exec {curl} "$@" -w '%{{stderr}}<HTTP %{{http_code}}>\\n'
"""


def absent(language: str) -> str | None:
    """Why examples in this language can't be run here, or None."""
    programs = {"sh": ("bash", "curl"), "js": ("node",), "python": ("bash",)}[language]
    lacking = [program for program in programs if shutil.which(program) is None]
    return f"{', '.join(lacking)} is not on this machine" if lacking else None


@dataclass
class Reader:
    """One terminal: what it has set so far, and the servers it keeps running."""

    home: Path
    replaced: Mapping[str, str]
    settings: Mapping[str, str]
    _servers: list[tuple[Fence, subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """A folder that looks like the checkout, in which examples may write."""
        (self.home / "tests").mkdir(parents=True)
        for shared in ("scripts", "tests/images"):
            (self.home / shared).symlink_to(ROOT / shared)
        programs = self.home / ".venv" / "bin"
        programs.mkdir(parents=True)
        self._program(programs / "arachne", f'#!/bin/sh\nexec "{sys.executable}" -P -m arachne "$@"\n')
        self._program(programs / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        if curl := shutil.which("curl"):
            self._program(programs / "curl", _CURL.format(curl=curl))
        (self.home / ".state").touch()
        (self.home / ".place").write_text(str(self.home))

    def types(self, fence: Fence) -> str:
        """What the example prints, errors included; it has ended well, and its requests were answered with success.

        A server is started and left running, and prints nothing yet.
        """
        line = self._line(fence)
        if ready := fence.told("stays"):
            self._stay(fence, line, ready[0])
            return ""
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self._environment(),
            cwd=self.home, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{fence} ended with {done.returncode}:\n{done.stdout}"
        if not any("HTTP" in one for one in fence.told("prints")):
            refused = [status for status in STATUS.findall(done.stdout) if status >= "400"]
            assert refused == [], f"{fence} was refused:\n{done.stdout}"
        return done.stdout

    def again(self, home: Path) -> "Reader":
        """Another reader, who has set the same so far."""
        other = Reader(home, self.replaced, self.settings)
        (home / ".state").write_text((self.home / ".state").read_text())
        return other

    def leaves(self) -> None:
        """Every server is stopped, once it has printed what the page says it prints."""
        for fence, process, output in self._servers:
            has_printed(fence, output)
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        self._servers.clear()

    def abandons(self) -> None:
        """Nothing is left running, whatever happened."""
        for _, process, _ in self._servers:
            process.kill()
            process.wait()

    def _line(self, fence: Fence) -> list[str]:
        text = fence.text
        for theirs, ours in self.replaced.items():
            text = text.replace(theirs, ours)
        name = f"example-{fence.line}"
        if fence.language == "sh" and fence.told("stays"):
            alone = text.strip().removesuffix(" &")  # its process is ours to end, so it can't be behind another
            typed = f'. "$READER_STATE"\nexec {alone}\n'
        elif fence.language == "sh":
            typed = _SHELL + text
        else:
            program, ending = {"python": ("python3", "py"), "js": ("node", "mjs")}[fence.language]
            (self.home / f"{name}.{ending}").write_text(text)
            typed = f'. "$READER_STATE"\nexec {program} {name}.{ending}\n'
        (self.home / f"{name}.sh").write_text(typed)
        return ["bash", f"{name}.sh"]

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("ARACHNE_")}
        path = f"{self.home / '.venv' / 'bin'}:{own['PATH']}"
        places = {"READER_STATE": str(self.home / ".state"), "READER_PLACE": str(self.home / ".place")}
        return own | self.settings | places | {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def _stay(self, fence: Fence, line: list[str], ready: str) -> None:
        self.leaves()  # the port is this one's now
        output = self.home / f"printed-{fence.line}"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=self._environment(),
                cwd=self.home,
            )  # fmt: skip
        self._servers.append((fence, process, output))
        eventually(lambda: re.search(ready, output.read_text()) or process.poll() is not None)
        assert process.poll() is None, f"{fence} did not stay:\n{output.read_text()}"

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)


def has_printed(fence: Fence, output: Path) -> None:
    """Everything the page says it prints is in the file, or comes to be there."""
    for pattern in fence.told("prints"):
        try:
            eventually(lambda sought=pattern: re.search(sought, output.read_text(), re.MULTILINE))  # type: ignore[misc]
        except AssertionError:
            raise AssertionError(f"{fence} has not printed {pattern!r}, but:\n{output.read_text()}") from None
