"""``qa-gateway capacity``: what it reckons from options and from saved readings, and what it refuses."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from gateway.cli import capacity
from gateway.client import ServerUnreachable
from gateway.evaluation.demand import measured
from gateway.observe.exposition import Course, Growth, Reading, UnusableMetrics
from gateway.observe.hooks import CacheRead, Made, ModelCall, Retry, Stage
from gateway.observe.metrics import Metrics

#: this command alone: building all of them for each call takes longer than what they do
APP = typer.Typer()
capacity.add_commands(APP)
NO_SETTINGS = {"GATEWAY_GENERATION_CONCURRENCY": None, "GATEWAY_MODEL_TOKENS_PER_MINUTE": None}


def run(*options: str, **env: str | None) -> Result:
    return CliRunner().invoke(APP, list(options), env={**NO_SETTINGS, **env})


def reckoned(*options: str, **env: str | None) -> dict[str, object]:
    found = run(*options, "--json", **env)
    assert found.exit_code == 0, found.output
    told: dict[str, object] = json.loads(found.stdout)
    return told


def part(found: dict[str, object], name: str) -> dict[str, object]:
    parts = found["parts"]
    assert isinstance(parts, list)
    (one,) = (each for each in parts if each["name"] == name)
    return dict(one)


class Place:
    """A bulkhead as the metrics see it."""

    name, size, in_use = "generation", 4, 3


def counted(questions: int, hits: int, followers: int, leaders: int, refused: int, retries: int) -> str:
    """The metrics of a gateway whose questions came to that; each generation took two seconds."""
    metrics = Metrics(close_reasons=["client_gone"], statuses=["ANSWERED", "REFUSED_NO_EVIDENCE"])
    metrics.watch_bulkhead(Place())
    for _ in range(questions):
        metrics.question()
    for _ in range(hits):
        metrics.cache_hit(1000)
    for count, leads in ((followers, False), (leaders, True)):
        for _ in range(count):
            metrics.flight(leads=leads)
    for _ in range(refused):
        metrics.making(Made.REFUSAL)
    for _ in range(leaders - refused):
        metrics.making(Made.GENERATION)
        metrics.model_call(ModelCall.GENERATION)
        metrics.model_tokens(900, 100)
        metrics.stage(Stage.GENERATE, 2.0)
    for _ in range(retries):
        metrics.model_call(ModelCall.GENERATION)
        metrics.model_retry(Retry.SAME_ENDPOINT)
    metrics.cache(CacheRead.MISS)
    return metrics.exposition().decode()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Of 1000 questions in 100 s 100 were lost, 450 hits, 90 shared, 36 refused; 4 calls were repeated."""
    folder = tmp_path_factory.mktemp("metrics")
    before, after = folder / "before.txt", folder / "after.txt"
    before.write_text(counted(50, 0, 0, 10, 5, 1))
    after.write_text(counted(1050, 450, 90, 370, 41, 5))
    return ("--before", str(before), "--after", str(after), "--seconds", "100")


def test_options_alone_are_enough() -> None:
    """10/s, half of them hits, a fifth of the rest refused: 4 generations a second of 3 s are 12 at once."""
    load = ("--arrivals", "10", "--hits", "0.5", "--refusals", "0.2", "--generation-seconds", "3")
    tokens = ("--input-tokens", "900", "--output-tokens", "100", "--tokens-per-minute", "100000")
    prices = ("--input-price", "1", "--output-price", "2")
    found = reckoned(*load, *tokens, *prices, "--places", "generation=8", "--processes", "2")
    assert found["generation_starts_per_s"] == pytest.approx(
        {"predicted": 4.0, "measured": None, "difference": None}
    )
    generation = part(found, "generation")
    assert generation["used"] == pytest.approx({"predicted": 12.0, "measured": None, "difference": None})
    assert (generation["size"], generation["pools"]) == (8, 2)
    assert generation["saturates_at_per_s"] == pytest.approx(16 / 12 * 10)
    assert found["bottleneck"] == "model_tokens"
    assert found["cost"] == pytest.approx(
        {"of_a_generation": 0.0011, "of_a_question": 0.00044, "of_an_hour": 4 * 3600 * 0.0011}
    )


def test_sizes_come_from_the_settings_where_nobody_names_them() -> None:
    """And an option comes before them."""
    load = ("--arrivals", "1", "--generation-seconds", "3")
    assert part(reckoned(*load, GATEWAY_GENERATION_CONCURRENCY="5"), "generation")["size"] == 5
    given = reckoned(*load, "--places", "generation=6", GATEWAY_GENERATION_CONCURRENCY="5")
    assert part(given, "generation")["size"] == 6


def test_saved_readings_give_the_load_and_what_to_compare_it_with(files: tuple[str, ...]) -> None:
    """What was there before the first one doesn't count; places are those of the gateway that was read."""
    found = reckoned(*files)
    measured = found["measured"]
    assert isinstance(measured, dict)
    shares = {"lost": 0.1, "hits": 0.5, "shared": 0.2, "refused": 0.1}
    assert measured["load"]["shares"] == pytest.approx(shares)
    assert measured["generation_starts"] == 324
    assert found["generation_starts_per_s"] == pytest.approx(
        {"predicted": 3.24, "measured": 3.24, "difference": 0.0}, abs=1e-9
    )
    assert found["model_tokens_per_min"] == pytest.approx(
        {"predicted": 194_400, "measured": 194_400, "difference": 0.0}, abs=1e-6
    )
    assert part(found, "generation")["used"] == pytest.approx(
        {"predicted": 6.48, "measured": 6.48, "difference": 0.0}, abs=1e-9
    )
    assert part(found, "generation")["size"] == 4


def test_places_that_were_looked_at_often_enough_are_the_mean_of_what_was_seen() -> None:
    """With fewer looks it is the time that was spent there."""
    first, last = (Reading(counted(questions, 0, 0, 0, 0, 0)) for questions in (1, 9))
    assert measured(Growth([Course(first, *[last] * 20)]), 10.0).busy["generation"] == Place.in_use
    assert measured(Growth([Course(first, last)]), 10.0).busy["generation"] == 0


def test_what_is_given_is_predicted_and_what_was_measured_stands_beside_it(files: tuple[str, ...]) -> None:
    """Half of the hits, at twice the rate: three times the generations."""
    found = reckoned(*files, "--hits", "0.25", "--arrivals", "20")
    assert found["generation_starts_per_s"] == pytest.approx(
        {"predicted": 9.72, "measured": 3.24, "difference": 2.0}
    )


def test_people_get_tables(files: tuple[str, ...]) -> None:
    """With the difference in percent and the bottleneck."""
    said = run(*files, "--hits", "0.45").stdout
    assert "told a kept answer" in said
    assert "+10.0%" in said
    assert "bottleneck: generation, serves 1.79 questions a second, used up at 5.61" in said
    assert "limits of calls and tokens are this command's own settings" in said


def test_the_bottleneck_is_what_serves_least_not_what_is_used_up_first() -> None:
    """One place that is seldom taken is too few long before 32 that are taken long; nothing was measured, so
    there is no gateway whose limits could be others.
    """
    load = ("--arrivals", "10", "--rerank-seconds", "0.01", "--generation-seconds", "0.5")
    sizes = ("--places", "rerank=1", "--places", "generation=32")
    found = reckoned(*load, *sizes)
    assert found["bottleneck"] == "rerank"
    rerank, generation = part(found, "rerank"), part(found, "generation")
    assert found["serves_per_s"] == rerank["serves_per_s"]
    assert found["saturates_at_per_s"] == rerank["saturates_at_per_s"] == pytest.approx(100)
    assert generation["saturates_at_per_s"] == pytest.approx(64)
    said = run(*load, *sizes).stdout
    assert "bottleneck: rerank, serves 14.9 questions a second, used up at 100" in said
    assert "own settings" not in said


def test_a_very_small_shortage_is_reckoned_and_a_smaller_one_refused() -> None:
    """Below it the arithmetic would not end; who asks is told where it begins."""
    assert run("--arrivals", "1", "--generation-seconds", "4", "--shortage", "1e-9").exit_code == 0
    found = run("--arrivals", "1", "--generation-seconds", "4", "--shortage", "9e-10")
    assert found.exit_code == 2
    assert "--shortage is at least 1e-09" in found.output


def test_processes_are_read_one_by_one(files: tuple[str, ...]) -> None:
    """Two files of each: what they counted is added up, their places aren't one pool."""
    found = reckoned(*files, *files[:4])
    assert found["processes"] == 2
    assert found["generation_starts_per_s"] == pytest.approx(
        {"predicted": 6.48, "measured": 6.48, "difference": 0.0}, abs=1e-9
    )
    assert part(found, "generation")["pools"] == 2


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--arrivals nan",
        "--arrivals -1",
        "--arrivals 1 --hits 1.5",
        "--arrivals 1 --seconds 5",
        "--arrivals 1 --shortage 0",
        "--arrivals 1 --shortage 0.7",
        "--arrivals 1 --shortage nan",
        "--arrivals 1 --generation-seconds 4 --shortage 1e-17",
        "--arrivals 1 --places generation",
        "--arrivals 1 --places generation=0",
        "--arrivals 1 --places kitchen=4",
        "--arrivals 1 --places generation=1e3",
        "--arrivals 1 --tenant-share nan",
        "--url http://127.0.0.1:9 --seconds 0",
        "--url http://127.0.0.1:9 --seconds inf",
        "--url http://127.0.0.1:9 --before {0} --after {0} --seconds 5",
        "--before {0} --after {0}",
        "--before {0} --seconds 5",
        "--before nowhere --after {0} --seconds 5",
    ],
)
def test_wrong_usage_is_told_before_anything_is_read(options: str, files: tuple[str, ...]) -> None:
    """Exit 2."""
    found = run(*options.format(files[1]).split())
    assert found.exit_code == 2, found.output


def test_a_gateway_that_does_not_answer_is_a_failure() -> None:
    """Not a prediction of nothing."""
    found = run("--url", "http://127.0.0.1:9", "--seconds", "1")
    assert isinstance(found.exception, ServerUnreachable)
    assert found.stderr == "watching for 1 seconds: http://127.0.0.1:9\n"
    assert found.stdout == ""
    assert isinstance(run("--url", "no address", "--seconds", "1").exception, ServerUnreachable)


def test_readings_that_say_nothing_are_a_failure(files: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing asked in between, the wrong way round, something else."""
    _, before, _, after, *_ = files
    other = tmp_path / "other.txt"
    other.write_bytes(b"\xff\xfe")
    for first, last in ((before, before), (after, before), (before, str(other))):
        found = run("--before", first, "--after", last, "--seconds", "5")
        assert isinstance(found.exception, UnusableMetrics)
