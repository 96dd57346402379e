"""What runs inside a stage subprocess, called in this process."""

import weakref
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import stage_faults
from PIL import Image

from arachne.actors.stage_process import Task, run
from arachne.errors import ArachneError, DecodeFailed, ImageError, OutOfMemory, ReadFailed, SetupError
from arachne.pipeline import ReadRequest
from arachne.schemas.options import Options
from arachne.schemas.result import Result

REQUEST = ReadRequest(Options(), ("eng",), Path("/nowhere"), 10**6, 1, 10.0)


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (MemoryError(), OutOfMemory),
        (DecodeFailed("no row", stage="decode"), DecodeFailed),
        (SetupError("no data"), ReadFailed),
        (KeyError("bug"), ReadFailed),
    ],
)
def test_a_failed_image_leaves_nothing_in_memory(raised: Exception, told: type[ImageError], tmp_path: Path) -> None:
    """The error is kept while the next image is read; what its frames held is not, or that one would run out too."""
    hoards: list[weakref.ref[np.ndarray]] = []

    def read(data: bytes, request: ReadRequest) -> object:
        hoard = np.frombuffer(data, np.uint8).copy()
        hoards.append(weakref.ref(hoard))
        raise raised from ValueError("first")

    (tmp_path / "image").write_bytes(b"12345")
    with pytest.raises(ArachneError) as kept:
        run(read, Task(str(tmp_path / "image"), str(tmp_path / "png"), REQUEST))
    assert kept.type is told
    assert hoards[0]() is None


def test_what_a_model_says_of_the_first_page_is_held_against_that_page(tmp_path: Path) -> None:
    """Words of other pages bear no witness to what it sees in the first one."""
    picture = BytesIO()
    Image.new("RGB", (40, 40)).save(picture, "PNG")
    (tmp_path / "image").write_bytes(picture.getvalue())

    def read(data: bytes, request: ReadRequest) -> Result:
        first, second = (
            stage_faults.read_to_describe(data, request).model_copy(update={"text": text}) for text in ("one", "two")
        )
        return first.model_copy(update={"text": "one\ftwo", "pages": [first, second]})

    done = run(read, Task(str(tmp_path / "image"), str(tmp_path / "png"), REQUEST, model="m"))
    assert done.question is not None
    assert done.question.text == "one"
