"""Receivers as integrators write them: the samples of README and docs/webhooks.md, run in their own languages.

Each sample is taken out of its page as it stands. A driver beside it sets the clock, asks it about each case, and
prints what it says.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.documents.fences import of_page

PAGES = ("README.md", "docs/webhooks.md")
TIMEOUT_S = 300  # a first run of Go compiles its library


@dataclass(frozen=True)
class Case:
    """A request as received, the receiver's secret, and the time it is."""

    secret: str
    headers: Mapping[str, str]
    body: bytes
    now_s: float


@dataclass(frozen=True)
class Sample:
    """A sample by the words behind its fence, how it is run, and why it can't be run here, or None."""

    name: str
    run: Callable[[str, Path, Sequence[Case]], list[bool]]
    missing: Callable[[], str | None]

    def verdicts(self, folder: Path, cases: Sequence[Case]) -> list[bool]:
        """What it says of each case; `folder` is empty and its own."""
        return self.run(blocks()[self.name], folder, cases)


def blocks() -> dict[str, str]:
    """The fenced examples of the pages by the words behind the fence; the last one where several have the same."""
    return {fence.info: fence.text for page in PAGES for fence in of_page(page)}


_PYTHON = """
import base64, datetime, json, sys, time
import sample

class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(now_s, tz)

if hasattr(sample, "Webhook"):
    sys.modules[sample.Webhook.__module__].datetime = Clock
time.time = lambda: now_s
said = []
for case in json.load(sys.stdin):
    now_s = case["now_s"]
    said.append(sample.is_genuine(case["secret"], case["headers"], base64.b64decode(case["body"])))
print(json.dumps(said))
"""
_NODE = """
const said = [];
for (const { secret, headers, body, now_s } of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
  Date.now = () => now_s * 1000;
  said.push(isGenuine(secret, headers, Buffer.from(body, "base64")));
}
console.log(JSON.stringify(said));
"""
_GO = """package main

import (
	"encoding/json"
	"os"
	"time"
)

func main() {
	var cases []struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    []byte            `json:"body"`
		NowS    float64           `json:"now_s"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	said := []bool{}
	for _, one := range cases {
		header := func(name string) string { return one.Headers[name] }
		said = append(said, IsGenuine(one.Secret, header, one.Body, time.UnixMilli(int64(one.NowS*1000))))
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		panic(err)
	}
}
"""


def _run_python(text: str, folder: Path, cases: Sequence[Case]) -> list[bool]:
    (folder / "sample.py").write_text(text)
    (folder / "driver.py").write_text(_PYTHON)
    return _ask([sys.executable, "driver.py"], folder, cases)


def _run_node(text: str, folder: Path, cases: Sequence[Case]) -> list[bool]:
    (folder / "sample.cjs").write_text(text + _NODE)
    return _ask(["node", "sample.cjs"], folder, cases)


def _run_go(text: str, folder: Path, cases: Sequence[Case]) -> list[bool]:
    (folder / "go.mod").write_text("module sample\n\ngo 1.21\n")
    (folder / "sample.go").write_text(text)
    (folder / "main.go").write_text(_GO)
    return _ask(["go", "run", "."], folder, cases, {"GOTOOLCHAIN": "local", "GOFLAGS": ""})


def _run_shell(text: str, folder: Path, cases: Sequence[Case]) -> list[bool]:
    (folder / "verify").write_text(text)
    clock = folder / "bin" / "date"
    clock.parent.mkdir()
    clock.write_text('#!/bin/sh\necho "$NOW_S"\n')
    clock.chmod(0o755)
    said = []
    for case in cases:
        own = {"WEBHOOK_SECRET": case.secret, "NOW_S": str(int(case.now_s))}
        own["PATH"] = f"{clock.parent}:{os.environ['PATH']}"
        values = [case.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")]
        line = ["sh", str(folder / "verify"), *values]
        done = subprocess.run(line, input=case.body, env=os.environ | own, check=False, timeout=TIMEOUT_S)
        said.append(done.returncode == 0)
    return said


def _ask(line: Sequence[str], folder: Path, cases: Sequence[Case], own: Mapping[str, str] | None = None) -> list[bool]:
    asked = [
        {
            "secret": case.secret,
            "headers": dict(case.headers),
            "body": base64.b64encode(case.body).decode(),
            "now_s": case.now_s,
        }
        for case in cases
    ]
    done = subprocess.run(
        line, input=json.dumps(asked), cwd=folder, env=os.environ | (own or {}), capture_output=True, text=True,
        check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: list[bool] = json.loads(done.stdout)
    return said


def _missing(*programs: str) -> str | None:
    absent = [program for program in programs if shutil.which(program) is None]
    return f"{', '.join(absent)} is not on this machine" if absent else None


def _missing_node_package() -> str | None:
    if reason := _missing("node"):
        return reason
    found = subprocess.run(
        ["node", "-e", 'require.resolve("standardwebhooks")'], check=False, capture_output=True, timeout=TIMEOUT_S
    )
    return "node finds no package standardwebhooks; install it and set NODE_PATH" if found.returncode else None


SAMPLES = (
    Sample("python standardwebhooks", _run_python, lambda: None),
    Sample("python short", _run_python, lambda: None),
    Sample("python stdlib", _run_python, lambda: None),
    Sample("js standardwebhooks", _run_node, _missing_node_package),
    Sample("js crypto", _run_node, lambda: _missing("node")),
    Sample("go", _run_go, lambda: _missing("go")),
    Sample("sh openssl", _run_shell, lambda: _missing("sh", "openssl", "od")),
)
