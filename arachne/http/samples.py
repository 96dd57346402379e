"""Examples of submissions that may be sent as they stand: a picture small enough to be read over."""

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR42mP4DwUMlDEA98A/wa9cD80AAAAASUVORK5CYII="
EXAMPLE_ONE = {
    "image": {"base64": PICTURE, "name": "dialog.png"},
    "options": {"detail_level": "fast", "languages": ["eng"]},
    "metadata": {"order": "4711"},
}
EXAMPLE_BATCH = {
    "images": [
        {"base64": PICTURE, "name": "a.png"},
        {"url": "https://example.com/shots/b.png", "name": "b.png"},
    ],
    "options": {"detail_level": "fast"},
}
