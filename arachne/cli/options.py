"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from arachne.settings import Settings

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Data folder of `arachne up`; ARACHNE_DATA_DIR when not given.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load(data_dir: Path | None = None, **overrides: object) -> Settings:
    """Settings with `--data-dir` and other options over the environment; the folder's path is absolute.

    Raises:
        SetupError: a value is not acceptable.
    """
    settings = Settings.load(data_dir=data_dir, **overrides)
    return settings.model_copy(update={"data_dir": settings.data_dir.expanduser().absolute()})
