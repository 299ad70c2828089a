"""The pool commands against a real server: what they print, and their exit statuses."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis as sync_redis
from typer.testing import CliRunner, Result

from examples.demo import first, process
from rectifier.cli import app

Run = Callable[..., Result]

FERRY = {"name": "FERRY_COUNT", "definition": "Ferries are counted twice over a tide."}


@pytest.fixture(scope="module")
def base_url(redis_url: str) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    with sync_redis.Redis.from_url(redis_url) as client:
        client.flushall()
        environment = {"REDIS_URL": redis_url, "QDRANT_URL": ":memory:"}
        command = [sys.executable, "-m", "benchmarks.double"]
        with process(command, environment) as started:
            yield first(started, "url")
        client.flushall()


@pytest.fixture
def run(base_url: str) -> Run:
    def invoke(*arguments: object, url: str = base_url) -> Result:
        environment = {"RECTIFIER_BASE_URL": url, "COLUMNS": "200"}
        return CliRunner().invoke(app, ["pool", *map(str, arguments)], env=environment)

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "indicators.jsonl"


def test_import_says_what_it_took(run: Run, file: Path) -> None:
    file.write_text(f"{json.dumps(FERRY)}\n\n", encoding="utf-8")
    done = run("import", file, "--pool", "taken")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "pool taken: 1 created, 0 updated, 0 unchanged, 0 refused\n"
    assert "1 unchanged" in run("import", file, "--pool", "taken").stdout


def test_refused_lines_are_named_and_the_others_taken(run: Run, file: Path) -> None:
    lines = [json.dumps(FERRY), "{broken", json.dumps(FERRY), '{"name": "NO_DEFINITION"}']
    file.write_text("\n".join(lines), encoding="utf-8")
    done = run("import", file, "--pool", "partly")
    assert done.exit_code == 1
    assert done.stdout == "pool partly: 1 created, 0 updated, 0 unchanged, 3 refused\n"
    first, second, third = done.stderr.splitlines()
    assert first == "line 2: not JSON"
    assert second == "line 3: duplicate of line 1"
    assert third.startswith("line 4: definition: ")


def test_line_numbers_hold_over_batches(run: Run, file: Path) -> None:
    rows = [{**FERRY, "definition": f"Ferry {n} is counted twice."} for n in range(450)]
    lines = [json.dumps(row) for row in rows]
    lines[430] = "{broken"
    file.write_text("\n".join(lines), encoding="utf-8")
    done = run("import", file, "--pool", "batches")
    assert done.stderr == "line 431: not JSON\n"
    assert "449 created" in done.stdout


@pytest.mark.parametrize("options", [(), ("--format", "released")])
def test_released_format_is_read(run: Run, file: Path, options: tuple[str, ...]) -> None:
    entry = {
        "name": FERRY["name"],
        "detailed_definition": FERRY["definition"],
        "evaluator_prompt": {"trigger_condition": "When ferries are counted."},
        "metadata": {"solution": "forty-two"},
    }
    file.write_text(json.dumps([entry, {"name": "BROKEN"}], indent=2), encoding="utf-8")
    done = run("import", file, "--pool", "array", *options)
    assert done.exit_code == 1
    assert done.stderr.startswith("line 2: definition: ")
    assert "forty-two" not in run("export", "--pool", "array").stdout


def test_array_that_is_cut_off_changes_nothing(run: Run, file: Path) -> None:
    file.write_text('[{"name": "A", "detailed_definition": "B"},', encoding="utf-8")
    done = run("import", file, "--pool", "cut")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "cut" not in run("list").stdout


def test_export_comes_back_byte_by_byte(run: Run, file: Path) -> None:
    assert run("export", "--pool", "math", "--output", file).exit_code == 0
    exported = file.read_bytes()
    done = run("import", file, "--pool", "math")
    assert (done.exit_code, done.stdout.split(": ")[1].split(",")[2]) == (0, " 12 unchanged")
    assert run("export", "--pool", "math").stdout_bytes == exported


def test_list_and_search_show_tables_and_json(run: Run) -> None:
    listed = json.loads(run("list", "--json").stdout)
    assert {"code", "math"} <= {one["pool"] for one in listed}
    assert "math" in run("list").stdout
    options = ("unit conversion", "--pool", "math", "--limit", 3)
    hits = json.loads(run("search", *options, "--json").stdout)
    assert len(hits) == 3
    assert all(hit["name"] in run("search", *options).stdout for hit in hits)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("import", "missing.jsonl", "--pool", "math"), "is not a file"),
        (("import", __file__, "--pool", "Bad Name"), "pool"),
        (("export", "--pool", "nowhere"), "there is no pool"),
        (("search", "text", "--pool", "nowhere"), "there is no pool"),
    ],
)
def test_what_cannot_be_done_ends_with_one_line(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://127.0.0.1", "nonsense", "http://["])
def test_service_that_does_not_answer_is_one_line(run: Run, file: Path, url: str) -> None:
    file.write_text(json.dumps(FERRY), encoding="utf-8")
    done = run("import", file, "--pool", "math", url=url)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("rectifier: ")


def test_refused_connection_says_how_to_start_the_service(run: Run) -> None:
    assert "`rectifier serve`" in run("list", url="http://127.0.0.1:1").stderr


def test_audit_prints_the_verdict_and_its_exit_status_tells_it(base_url: str, file: Path) -> None:
    environment = {"RECTIFIER_BASE_URL": base_url, "COLUMNS": "200"}
    asked = ["audit", str(file), "--task", "How many pens are 17 boxes of 23?"]
    file.write_text("17 * 23 = 381", encoding="utf-8")
    wrong = CliRunner().invoke(app, asked, env=environment)
    assert (wrong.exit_code, wrong.stdout.splitlines()[0]) == (1, "fail (violated, pass rate 0.00)")
    assert "17 * 23 = 391" in wrong.stdout
    file.write_text("17 * 23 = 391", encoding="utf-8")
    right = CliRunner().invoke(app, [*asked, "--json"], env=environment)
    assert (right.exit_code, json.loads(right.stdout)["reason"]) == (0, "no_judge")


def test_audit_takes_a_request_from_standard_input(base_url: str) -> None:
    environment = {"RECTIFIER_BASE_URL": base_url}
    request = json.dumps({"task": "Sum of 2 and 2?", "message": {"content": "2 + 2 = 4"}})
    done = CliRunner().invoke(app, ["audit", "-"], input=request, env=environment)
    assert done.exit_code == 0
    bad = CliRunner().invoke(app, ["audit", "-"], input="2 + 2 = 4", env=environment)
    assert bad.exit_code == 2
    assert bad.stderr.splitlines() == [
        "rectifier: the body is not JSON: it does not parse at character 2; "
        "give the task with --task, or a JSON request"
    ]


def test_commands_find_the_service_that_their_environment_describes(base_url: str) -> None:
    port = base_url.rpartition(":")[2]
    environment = {"RECTIFIER_PORT": port, "RECTIFIER_BASE_URL": ""}
    done = CliRunner().invoke(app, ["pool", "list", "--json"], env=environment)
    assert (done.exit_code, done.stderr) == (0, "")
    assert {"math", "code"} <= {pool["pool"] for pool in json.loads(done.stdout)}
