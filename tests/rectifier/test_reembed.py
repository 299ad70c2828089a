"""``rectifier reembed``: a store that was filled with another model is usable again."""

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from rectifier.cli import app
from rectifier.wiring import STORE_FOLDER
from rectifier_core.adapters.edge_store import EdgeStore
from rectifier_core.adapters.minilm import DIMENSION, MODEL
from rectifier_core.store import Binding
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.vectors import with_vectors
from tests.support.stores import an_indicator


def test_store_of_another_model_is_embedded_anew(tmp_path: Path) -> None:
    async def fill() -> None:
        embedder, store = HashedEmbedder(), EdgeStore(tmp_path / STORE_FOLDER)
        await store.open(model=embedder.model, dimension=embedder.dimension)
        await store.upsert(await with_vectors([an_indicator(1), an_indicator(2)], embedder))
        await store.close()

    async def binding() -> Binding | None:
        return await EdgeStore(tmp_path / STORE_FOLDER).binding()

    asyncio.run(fill())
    done = CliRunner().invoke(app, ["reembed", "--data-dir", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "2 indicators were embedded anew\n"), done.output
    assert asyncio.run(binding()) == Binding(MODEL, DIMENSION)
    again = CliRunner().invoke(app, ["reembed", "--data-dir", str(tmp_path)])
    assert again.stdout == "0 indicators were embedded anew\n"
