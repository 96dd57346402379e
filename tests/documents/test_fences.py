"""Every fenced example can be checked: run, parsed or compared with the API's description, or it says why not."""

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from io import StringIO
from typing import Any

import jsonschema
import pytest
import yaml
from dotenv import dotenv_values

from arachne.http.openapi import describe
from arachne.http.routes import all_resources
from arachne.metrics import CATALOG
from arachne.settings import Settings
from tests.documents.fences import Fence, all_fences, parse
from tests.standins.integrators import PAGES, SAMPLES

RUN = {"sh", "python", "js"}  # by tests/acceptance/test_examples.py
SHOWN = {"text"}  # pictures made of letters
_SAMPLES = {sample.name for sample in SAMPLES}


def is_sample(fence: Fence) -> bool:
    """Whether test_integrators.py runs it as a receiver, or test_client_library.py where the client alone is."""
    of_the_client = fence.page == "docs/client.md" and fence.language == "python"
    return of_the_client or (fence.page in PAGES and fence.info in _SAMPLES)


@pytest.mark.parametrize("fence", all_fences(), ids=str)
def test_every_example_is_checked_or_says_why_not(fence: Fence) -> None:
    """A language nobody knows here, and an example without an outcome to look at, are faults of the page."""
    assert fence.language, "name the language behind the fence; a picture made of letters is `text`"
    assert fence.language in RUN | SHOWN | set(PARSERS) | {"go", "sql"}, f"nobody checks {fence.language!r} here"
    if fence.reason is not None:
        assert len(fence.reason.split()) > 2, "say why it is not run"
    elif fence.language in PARSERS:
        PARSERS[fence.language](fence)
    elif fence.language in RUN and not is_sample(fence):
        assert fence.told("prints"), "say what it prints in <!-- prints: … -->, or why it is <!-- not run: … -->"
    elif fence.language == "go":
        assert is_sample(fence), "only samples that verify signatures are run as Go"


@pytest.mark.parametrize("fence", [one for one in all_fences() if one.language in RUN], ids=str)
def test_programs_are_ones_in_their_language(fence: Fence) -> None:
    """Those that are not run too."""
    if fence.language == "python":
        ast.parse(fence.text)
        return
    line = {"sh": ["bash", "-n"], "js": ["node", "--check", "--input-type=module", "-"]}[fence.language]
    if shutil.which(line[0]) is None:
        pytest.skip(f"{line[0]} is not on this machine")
    done = subprocess.run(line, input=fence.text, text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_comments_about_examples_stand_right_before_one() -> None:
    """Else they would be about another one, or about none, unseen."""
    assert [fence.reason for fence in parse("<!-- not run: because it can't -->\n```sh\nx\n```\n", "a")] == [
        "because it can't"
    ]
    for text in ("<!-- not run: because -->\n\n```sh\nx\n```\n", "```sh\nx\n"):
        with pytest.raises(ValueError, match=r"^a:[12]: "):
            list(parse(text, "a"))


def check_json(fence: Fence) -> None:
    """It is what it is said to be: a value of a setting, or by the API's description."""
    value = json.loads(fence.text)
    name, _, member = (*fence.told("is"), "")[0].partition(" without ")
    assert name, "say which part of /openapi.json or which setting it is in <!-- is: … -->"
    if name.startswith("ARACHNE_"):
        setting = name.removeprefix("ARACHNE_").lower()
        assert setting in Settings.model_fields
        Settings.load(**{setting: value})
        return
    assert name in description()["components"]["schemas"], f"/openapi.json has no {name}"
    value |= {member: "left out"} if member else {}
    schema = description() | {"$ref": f"#/components/schemas/{name}"}
    jsonschema.Draft202012Validator(schema).validate(value)


def check_yaml(fence: Fence) -> None:
    """It is an object."""
    assert isinstance(yaml.safe_load(fence.text), dict)


def check_environment(fence: Fence) -> None:
    """Each line sets a variable, and ours are settings."""
    values = dotenv_values(stream=StringIO(fence.text))
    assert values
    assert None not in values.values()
    for name in values:
        assert not name.startswith("ARACHNE_") or name.removeprefix("ARACHNE_").lower() in Settings.model_fields, name


def check_promql(fence: Fence) -> None:
    """Each line is about metrics of ours."""
    known = {f"{one.name}{ending}" for one in CATALOG for ending in ("", "_bucket", "_sum", "_count")}
    assert set(re.findall(r"\barachne_[a-z_]+", fence.text)) <= known


@cache
def description() -> dict[str, Any]:
    """What /openapi.json answers."""
    return json.loads(json.dumps(describe(all_resources(), Settings())))  # type: ignore[no-any-return]


PARSERS: dict[str, Callable[[Fence], None]] = {
    "json": check_json,
    "yaml": check_yaml,
    "dotenv": check_environment,
    "promql": check_promql,
}
