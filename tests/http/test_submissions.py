"""Submissions become jobs, whatever form they come in; what is wrong with them is told at once."""

import json

from sqlmodel import select

from arachne.schemas.tables import Image, Job
from tests.http.conftest import BASE_URL, Service, Start
from tests.http.pictures import gif, huge_png, png
from tests.http.sending import MANY, ONE, send, text


async def test_an_uploaded_image_is_accepted_and_can_be_polled(service: Service) -> None:
    response = await send(service, ONE, files={"file": ("shot.png", png())}, data={"metadata": '{"order": "7"}'})
    assert response.status_code == 202, response.text
    job = response.json()
    assert (job["status"], job["finished"], job["cached"]) == ("queued", False, False)
    assert job["progress"] == {
        "total": 1, "completed": 0, "failed": 0, "cancelled": 0, "cached": 0, "degraded": 0, "percent": 0
    }  # fmt: skip
    assert job["queue"] == {"position": 0, "eta_seconds": None}
    assert job["metadata"] == {"order": "7"}
    assert (job["result"], job["error"]) == (None, None)
    assert job["images"][0]["name"] == "shot.png"
    assert response.headers["location"] == f"{BASE_URL}/api/extract/image-jobs/{job['job_id']}"
    assert int(response.headers["retry-after"]) >= 1
    polled = await service.client.get(response.headers["location"], headers=await service.headers())
    assert polled.status_code == 200
    assert polled.json() == job


async def test_the_original_is_kept_and_given_back_as_an_attachment(service: Service) -> None:
    data = png()
    response = await send(service, ONE, files={"file": ("../../<x>.html", data, "text/html")})
    url = response.headers["location"] + "/images/0/original"
    original = await service.client.get(url, headers=await service.headers())
    assert original.content == data
    assert original.headers["content-type"] == "image/png"
    assert original.headers["x-content-type-options"] == "nosniff"
    assert original.headers["content-disposition"].startswith("attachment")
    assert original.headers["content-security-policy"] == "sandbox"


async def test_a_batch_keeps_its_order_by_upload_and_by_base64(service: Service) -> None:
    colours = [(n * 40, 0, 0) for n in range(5)]
    files = [("files", (f"{n}.png", png(colour))) for n, colour in enumerate(colours)]
    uploaded = (await send(service, MANY, files=files)).json()
    inline = (
        await send(
            service,
            MANY,
            json={"images": [{"base64": text(png(c)), "name": f"{n}.png"} for n, c in enumerate(colours)]},
        )
    ).json()
    for job in (uploaded, inline):
        assert [(image["index"], image["name"]) for image in job["images"]] == [(n, f"{n}.png") for n in range(5)]
        assert "result" not in job
    assert [image["sha256"] for image in uploaded["images"]] == [image["sha256"] for image in inline["images"]]


async def test_one_bad_image_does_not_sink_the_batch(service: Service) -> None:
    files = [
        ("files", ("good.png", png())),
        ("files", ("text.png", b"I am no image")),
        ("files", ("empty.png", b"")),
        ("files", ("huge.png", huge_png(100_000, 100_000))),
    ]
    response = await send(service, MANY, files=files)
    assert response.status_code == 202
    found = [(image["status"], (image["error"] or {}).get("code")) for image in response.json()["images"]]
    assert found == [
        ("queued", None),
        ("failed", "unsupported_image"),
        ("failed", "unsupported_image"),
        ("failed", "image_too_large"),
    ]
    damaged = await send(service, MANY, json={"images": [{"base64": text(png())}, {"base64": "!!!"}]})
    assert damaged.json()["images"][1]["error"]["code"] == "decode_failed"


async def test_limits_on_bytes_frames_and_number_of_images(start: Start) -> None:
    async with start(max_image_bytes=500, max_frames=3, max_images_per_job=2) as service:
        await service.account()
        noise = png() + bytes(600)
        large = await send(service, ONE, files={"file": ("a.png", noise)})
        assert (large.status_code, large.json()["code"]) == (413, "image_too_large")
        frames = await send(service, ONE, files={"file": ("a.gif", gif(4))}, params={"frames": "all"})
        assert (frames.status_code, frames.json()["code"]) == (413, "too_many_frames")
        first = await send(service, ONE, files={"file": ("a.gif", gif(4))})
        assert first.status_code == 202
        three = [("files", (f"{n}.png", png())) for n in range(3)]
        many = await send(service, MANY, files=three)
        assert (many.status_code, many.json()["code"]) == (413, "too_many_images")
        inline = await send(service, MANY, json={"images": [{"base64": text(png())}] * 3})
        assert (inline.status_code, inline.json()["code"]) == (413, "too_many_images")


async def test_options_come_as_a_part_as_a_member_or_in_the_query(service: Service) -> None:
    part = await send(
        service, ONE, files={"file": ("a.png", png())}, data={"options": json.dumps({"detail_level": "fast"})}
    )
    member = await send(service, ONE, json={"image": {"base64": text(png())}, "options": {"detail_level": "fast"}})
    query = await send(service, ONE, files={"file": ("a.png", png())}, params={"detail_level": "fast"})
    for response in (part, member, query):
        assert response.json()["options"]["detail_level"] == "fast"
    listed = await send(service, ONE, files={"file": ("a.png", png())}, params={"stages": "assess,segment"})
    assert listed.json()["options"]["stages"] == ["decode", "assess", "upright", "enhance", "segment"]


async def test_names_with_nul_or_too_long_are_422(service: Service) -> None:
    for name in ("n" * 256, "a\0b"):
        response = await send(service, ONE, json={"image": {"base64": text(png()), "name": name}})
        assert response.status_code == 422
    kept = await send(service, ONE, json={"image": {"base64": text(png()), "name": "ภาพ/../x" + "n" * 200}})
    assert kept.json()["images"][0]["name"].startswith("ภาพ/../x")


async def test_a_body_over_the_limit_is_413_by_length_and_while_it_streams(start: Start) -> None:
    async with start(max_request_bytes=20_000, max_json_bytes=10_000) as service:
        await service.account()
        declared = await send(service, MANY, files=[("files", ("a.png", bytes(30_000)))])
        assert (declared.status_code, declared.json()["code"]) == (413, "request_too_large")

        async def stream():  # type: ignore[no-untyped-def]  # an async generator of chunks
            for _ in range(20):
                yield b" " * 1000

        streamed = await send(service, ONE, content=stream(), headers={"Content-Type": "application/json"})
        assert (streamed.status_code, streamed.json()["code"]) == (413, "request_too_large")


async def test_nothing_is_written_for_a_refused_submission(service: Service) -> None:
    await send(service, MANY, files=[("files", ("a.png", b"x"))])
    await send(service, ONE, json={"image": {"base64": text(png())}, "options": {"x": 1}})
    found = await service.database.run(
        lambda tx: [*tx.session.exec(select(Job.job_id)), *tx.session.exec(select(Image.image_id))]
    )
    assert found == []


async def test_options_that_are_no_object_are_422_beside_query_parameters_too(service: Service) -> None:
    for options in ("[1, 2]", '"fast"', "0"):
        for params in ({}, {"detail_level": "fast"}):
            request = {"files": {"file": ("a.png", png())}, "data": {"options": options}, "params": params}
            response = await send(service, ONE, **request)
            assert (response.status_code, response.json()["code"]) == (422, "invalid_options"), (options, params)
