"""A scripted endpoint for tests that talk to a model."""

from collections.abc import Iterator

import pytest

from rectifier_core.testing.scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    """A scripted endpoint on a free loopback port; it answers ``{}`` until told otherwise."""
    with ScriptedEndpoint() as started:
        yield started
