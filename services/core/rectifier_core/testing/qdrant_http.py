"""A Qdrant server for tests: its HTTP interface, as far as the store uses it, on the real engine.

Filters, scores and paging come from ``qdrant-edge``; requests come from the real client over a
real socket. Aliases and metadata, which the engine does not have, are kept here. No gRPC.
"""

import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import qdrant_edge as edge
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

START_S = 10.0  # seconds
STOP_S = 10.0

Json = dict[str, Any]


class RefusedError(Exception):
    """What the server answers with a status of 400 and above."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection.

    Attributes:
        shard: The engine.
        vectors: Parameters of the named vectors, as they came.
        metadata: As it came.
    """

    shard: edge.EdgeShard
    vectors: Json
    metadata: Json | None


class QdrantHttp:
    """Serves in a thread on a free port from ``with`` to its end; nothing is kept afterwards.

    Attributes:
        url: Where it listens.
        fault: Status that answers every request while it is set, e.g. 500.
        requests: ``METHOD path`` of every request so far.
    """

    def __init__(self, folder: Path) -> None:
        """Keep the folder, in which collections are made."""
        self.fault: int | None = None
        self.requests: list[str] = []
        self._folder = folder
        self._collections: dict[str, Collection] = {}
        self._aliases: dict[str, str] = {}
        # The engine is called from the server's one thread, so nothing needs a lock.
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(self._app(), log_config=None, access_log=False, lifespan="off")
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._serve, name="qdrant-http", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._server.listening.wait(START_S):
            raise RuntimeError("the stand-in did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_S)
        self._listener.close()
        for name in list(self._collections):
            self._drop(name)

    def _serve(self) -> None:
        self._server.run(sockets=[self._listener])

    def _app(self) -> Starlette:
        one = "/collections/{name}"
        return Starlette(
            routes=[
                Route("/", self._answering(self._root)),
                Route("/aliases", self._answering(self._list_aliases)),
                Route("/collections", self._answering(self._list_collections)),
                Route(
                    "/collections/aliases",
                    self._answering(self._change_aliases),
                    methods=["POST"],
                ),
                Route(one, self._answering(self._describe), methods=["GET"]),
                Route(one, self._answering(self._create), methods=["PUT"]),
                Route(one, self._answering(self._delete_collection), methods=["DELETE"]),
                Route(f"{one}/exists", self._answering(self._exists)),
                Route(f"{one}/index", self._answering(self._index), methods=["PUT"]),
                Route(f"{one}/points", self._answering(self._upsert), methods=["PUT"]),
                Route(f"{one}/points", self._answering(self._retrieve), methods=["POST"]),
                Route(f"{one}/points/delete", self._answering(self._delete), methods=["POST"]),
                Route(f"{one}/points/scroll", self._answering(self._scroll), methods=["POST"]),
                Route(f"{one}/points/query", self._answering(self._query), methods=["POST"]),
                Route(f"{one}/points/count", self._answering(self._count), methods=["POST"]),
            ]
        )

    def _answering(
        self, handler: Callable[[str, Json], object]
    ) -> Callable[[Request], Any]:  # a coroutine function, which Starlette leaves untyped
        async def endpoint(request: Request) -> Response:
            self.requests.append(f"{request.method} {request.url.path}")
            if self.fault is not None:
                return _problem(self.fault, "a fault that the test asked for")
            body = await request.body()
            try:
                result = handler(
                    request.path_params.get("name", ""), await request.json() if body else {}
                )
            except RefusedError as refused:
                return _problem(refused.status, str(refused))
            except Exception as error:  # noqa: BLE001 - the engine raises nothing narrower
                return _problem(400, f"Wrong input: {error}")
            if request.url.path == "/":
                return JSONResponse(result)
            return JSONResponse({"result": result, "status": "ok", "time": 0.0})

        return endpoint

    def _root(self, _name: str, _body: Json) -> Json:
        # The client compares this with its own version.
        return {"title": "qdrant (stand-in for tests)", "version": version("qdrant-client")}

    def _list_collections(self, _name: str, _body: Json) -> Json:
        return {"collections": [{"name": name} for name in self._collections]}

    def _list_aliases(self, _name: str, _body: Json) -> Json:
        return {
            "aliases": [
                {"alias_name": alias, "collection_name": name}
                for alias, name in self._aliases.items()
            ]
        }

    def _change_aliases(self, _name: str, body: Json) -> bool:
        aliases = dict(self._aliases)
        for action in body["actions"]:
            match action:
                case {"create_alias": {"alias_name": alias, "collection_name": name}}:
                    self._get(name)
                    aliases[alias] = name
                case {"delete_alias": {"alias_name": alias}}:
                    aliases.pop(alias, None)
                case _:
                    raise RefusedError(400, "Wrong input: unknown alias action")
        self._aliases = aliases
        return True

    def _exists(self, name: str, _body: Json) -> Json:
        return {"exists": self._aliases.get(name, name) in self._collections}

    def _describe(self, name: str, _body: Json) -> Json:
        collection = self._get(name)
        info = collection.shard.info()
        return {
            "status": "green",
            "optimizer_status": "ok",
            "points_count": info.points_count,
            "indexed_vectors_count": info.indexed_vectors_count,
            "segments_count": info.segments_count,
            "payload_schema": {
                field: {"data_type": "keyword", "points": index.points}
                for field, index in info.payload_schema.items()
            },
            "config": {
                "params": {"vectors": collection.vectors},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1_000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
                "metadata": collection.metadata,
            },
        }

    def _create(self, name: str, body: Json) -> bool:
        if name in self._collections or name in self._aliases:
            raise RefusedError(409, f"Wrong input: Collection `{name}` already exists!")
        vectors = {key: _vector_params(params) for key, params in body["vectors"].items()}
        config = edge.EdgeConfig(vectors=vectors, wal_enabled=False)  # nothing is to last
        shard = edge.EdgeShard.create(str(self._folder / name), config)
        self._collections[name] = Collection(shard, body["vectors"], body.get("metadata"))
        return True

    def _delete_collection(self, name: str, _body: Json) -> bool:
        name = self._aliases.get(name, name)
        if name not in self._collections:
            return False
        self._aliases = {key: value for key, value in self._aliases.items() if value != name}
        self._drop(name)
        return True

    def _index(self, name: str, body: Json) -> Json:
        schema = body["field_schema"]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind != "keyword":
            raise RefusedError(400, "Wrong input: the stand-in indexes keywords only")
        operation = edge.UpdateOperation.create_field_index(
            body["field_name"], edge.PayloadSchemaType.Keyword
        )
        return self._update(name, operation)

    def _upsert(self, name: str, body: Json) -> Json:
        points = [
            edge.Point(point["id"], point["vector"], point.get("payload"))
            for point in body["points"]
        ]
        return self._update(name, edge.UpdateOperation.upsert_points(points))

    def _retrieve(self, name: str, body: Json) -> list[Json]:
        records = self._get(name).shard.retrieve(
            body["ids"],
            with_payload=body.get("with_payload", True),
            with_vector=body.get("with_vector", False),
        )
        return [_record(record) for record in records]

    def _delete(self, name: str, body: Json) -> Json:
        if "points" in body:
            return self._update(name, edge.UpdateOperation.delete_points(body["points"]))
        chosen = _filter(body["filter"])
        if chosen is None:
            raise RefusedError(400, "Wrong input: a filter without conditions")
        return self._update(name, edge.UpdateOperation.delete_points_by_filter(chosen))

    def _scroll(self, name: str, body: Json) -> Json:
        records, following = self._get(name).shard.scroll(
            edge.ScrollRequest(
                offset=body.get("offset"),
                limit=body.get("limit") or 10,
                filter=_filter(body.get("filter")),
                with_payload=body.get("with_payload", True),
                with_vector=body.get("with_vector", False),
            )
        )
        return {
            "points": [_record(record) for record in records],
            "next_page_offset": None if following is None else str(following),
        }

    def _query(self, name: str, body: Json) -> Json:
        query = body["query"]
        vector = query["nearest"] if isinstance(query, dict) else query
        params = body.get("params") or {}
        points = self._get(name).shard.query(
            edge.QueryRequest(
                limit=body.get("limit") or 10,
                query=edge.Query.Nearest(vector, using=body.get("using")),
                filter=_filter(body.get("filter")),
                params=edge.SearchParams(exact=bool(params.get("exact"))),
                score_threshold=body.get("score_threshold"),
                with_payload=body.get("with_payload", False),
                with_vector=body.get("with_vector", False),
            )
        )
        return {
            "points": [
                {**_record(point), "score": point.score, "version": point.version}
                for point in points
            ]
        }

    def _count(self, name: str, body: Json) -> Json:
        request = edge.CountRequest(exact=True, filter=_filter(body.get("filter")))
        return {"count": self._get(name).shard.count(request)}

    def _get(self, name: str) -> Collection:
        try:
            return self._collections[self._aliases.get(name, name)]
        except KeyError:
            detail = f"Not found: Collection `{name}` doesn't exist!"
            raise RefusedError(404, detail) from None

    def _update(self, name: str, operation: edge.UpdateOperation) -> Json:
        self._get(name).shard.update(operation)
        return {"operation_id": 1, "status": "completed"}

    def _drop(self, name: str) -> None:
        self._collections.pop(name).shard.close()
        shutil.rmtree(self._folder / name, ignore_errors=True)


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


def _problem(status: int, detail: str) -> Response:
    return JSONResponse({"status": {"error": detail}, "time": 0.0}, status)


def _vector_params(params: Mapping[str, Any]) -> edge.EdgeVectorParams:
    distance = getattr(edge.Distance, params["distance"])
    return edge.EdgeVectorParams(size=params["size"], distance=distance)


def _record(record: edge.Record | edge.ScoredPoint) -> Json:
    return {"id": str(record.id), "payload": record.payload, "vector": record.vector}


def _filter(given: Mapping[str, Any] | None) -> edge.Filter | None:
    if not given:
        return None
    if set(given) - {"must", "should", "must_not"}:
        raise RefusedError(400, "Wrong input: the stand-in does not know this filter")
    return edge.Filter(
        must=_conditions(given.get("must")),
        should=_conditions(given.get("should")),
        must_not=_conditions(given.get("must_not")),
    )


def _conditions(given: Any) -> list[Any] | None:  # one condition or several, of several types
    if given is None:
        return None
    return [_condition(one) for one in (given if isinstance(given, list) else [given])]


def _condition(given: Mapping[str, Any]) -> object:
    match given:
        case {"key": key, "match": {"value": value}}:
            return edge.FieldCondition(key=key, match=edge.MatchValue(value))
        case {"key": key, "match": {"any": values}}:
            return edge.FieldCondition(key=key, match=edge.MatchAny(values))
        case {"has_id": ids}:
            return edge.HasIdCondition(set(ids))
        case _:
            return _filter(given)
