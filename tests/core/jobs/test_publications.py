"""What workers publish reaches the API."""

from arachne.jobs.publications import Published, model_versions, publish, publish_models, published
from arachne.jobs.workers import register, unregister


def test_nothing_is_published_at_first(database) -> None:
    """A fresh database knows no versions."""
    assert database.run(published) is None


def test_latest_facts_are_published(database) -> None:
    """The last worker to speak is believed, and a model without a digest goes by its name."""
    database.run(publish, Published("p1", ("eng",), {}))
    facts = Published("p2", ("eng", "tha"), {"qwen2.5vl:7b": "qwen2.5vl:7b@0123456789ab"})
    database.run(publish, facts)
    assert database.run(published) == facts
    assert facts.model_version("qwen2.5vl:7b") == "qwen2.5vl:7b@0123456789ab"
    assert facts.model_version("other") == "other"
    assert facts.model_version(None) == "none"


def test_models_outlive_a_start_without_their_server(database) -> None:
    """A worker that can't ask the server knows, and leaves alone, what was published last."""
    assert database.run(model_versions) == {}
    database.run(publish, Published("p1", ("eng",), {"small": "small@0", "large": "large@1"}))
    database.run(publish, Published("p2", ("eng",)))
    database.run(publish_models, {"small": "small@2"})
    assert database.run(model_versions) == {"small": "small@2", "large": "large@1"}
    assert database.run(published).model_versions == {"small": "small@2", "large": "large@1"}


def test_unchanged_facts_are_not_written_again(database) -> None:
    """Publishing at every start makes no dead rows."""
    facts = Published("p1", ("eng",), {"small": "small@0"})
    database.run(publish, facts)
    with database.transaction() as transaction:
        from sqlalchemy import text

        before = transaction.session.execute(text("SELECT name, xmin::text FROM publication ORDER BY name")).all()
    database.run(publish, facts)
    with database.transaction() as transaction:
        assert (
            transaction.session.execute(text("SELECT name, xmin::text FROM publication ORDER BY name")).all() == before
        )


def test_languages_are_those_every_living_worker_reads(database) -> None:
    """Any of them may claim the image. When the poorer one has left, the others' languages are offered again."""
    rich, poor = ("eng", "deu", "tha"), ("eng", "tha")
    for languages in (poor, rich):
        database.run(publish, Published("p1", languages))
    database.run(register, "gpu", languages=rich)
    lesser = database.run(register, "gpu", languages=poor)
    database.run(register, "gpu")
    assert database.run(published).languages == ("eng", "tha")
    database.run(unregister, lesser)
    assert database.run(published).languages == rich
