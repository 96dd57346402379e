"""Options that several commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from arachne.settings import Settings

Model = TypeVar("Model", bound=BaseModel)


def folder(name: str) -> Path:
    """The folder of this name.

    Raises:
        typer.BadParameter: the name is empty, as of a variable that is not set.
    """
    if not name:
        raise typer.BadParameter("An empty name is no folder.")
    return Path(name)


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=folder,
        help="Data folder of `arachne up`; ARACHNE_DATA_DIR when not given.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load(data_dir: Path | None = None, **overrides: object) -> Settings:
    """Settings with `--data-dir` and other options over the environment; the folder's path is absolute.

    Raises:
        SetupError: a value is not acceptable.
    """
    settings = Settings.load(data_dir=data_dir, **overrides)
    return settings.model_copy(update={"data_dir": settings.data_dir.expanduser().absolute()})


def validate(model: type[Model], given: Mapping[str, object]) -> Model:
    """The model with what was given.

    Raises:
        typer.BadParameter: it is not acceptable; says why.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        told = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in error.errors())
        raise typer.BadParameter("; ".join(told)) from None
