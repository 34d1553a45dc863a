"""The benchmark harness: what it counts, and what it reports."""

import io
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as command
from benchmarks import agent, bars, catalog, measures, report
from benchmarks.drains import Drain, calls_at, moment_of
from benchmarks.measures.measure import Measure, Numbers, Scale, count_for
from benchmarks.plots import Bar, draw_bars
from benchmarks.record import read_delays, read_sample
from benchmarks.system import System, Unsupported

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
SCALE = Scale(rounds=2)


def run_handlers(code: str, records: Path) -> None:
    """Run code in a new process: a process keeps one record until it exits."""
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"BENCH_RECORD": str(records), "PYTHONPATH": str(ROOT)},
        check=True,
    )


def test_calls_of_threads_are_counted(tmp_path: Path) -> None:
    code = """
        from concurrent.futures import ThreadPoolExecutor
        from benchmarks.handlers import nothing
        with ThreadPoolExecutor(8) as pool:
            for _ in range(500):
                pool.submit(nothing)
        nothing()
    """
    run_handlers(code, tmp_path)
    sample = read_sample(tmp_path)
    assert sample.calls == 501
    assert len(sample.begun) == 1


def test_calls_of_forked_processes_are_added_up(tmp_path: Path) -> None:
    code = """
        import os
        from benchmarks.handlers import nothing
        nothing()
        if os.fork() == 0:
            nothing()
            nothing()
            os._exit(0)
        os.wait()
    """
    run_handlers(code, tmp_path)
    sample = read_sample(tmp_path)
    assert sample.calls == 3
    assert len(sample.begun) == 2


def test_a_stamped_job_keeps_its_delay(tmp_path: Path) -> None:
    code = """
        import time
        from benchmarks.handlers import stamp
        stamp(time.monotonic_ns() - 2_000_000_000)
    """
    run_handlers(code, tmp_path)
    [delay] = read_delays(tmp_path)
    assert delay >= 2
    assert read_sample(tmp_path).calls == 1


def test_nothing_is_counted_before_the_first_call(tmp_path: Path) -> None:
    assert read_sample(tmp_path).calls == 0


CURVE = ((10.0, 0), (11.0, 100), (12.0, 400), (13.0, 1000))


def make_drain(**values: Any) -> Drain:
    known: dict[str, Any] = {"curve": CURVE, "begun": 10.0, "ended": 14.0}
    return Drain(**known | {"is_complete": True, "memory": (0, 0)} | values)


def test_calls_are_interpolated_between_two_samples() -> None:
    assert calls_at(CURVE, 11.5) == 250
    assert moment_of(CURVE, 250) == 11.5


def test_rate_is_measured_until_the_last_end_is_written() -> None:
    assert make_drain().rate == 1000 / 4


def test_rate_counts_from_when_all_processes_take_part() -> None:
    assert make_drain(begun=11.0, ended=13.0).rate == 900 / 2


def test_tenths_are_of_jobs_and_not_of_time() -> None:
    result = make_drain()
    assert result.tenth(1) == pytest.approx(100)
    assert result.tenth(10) == pytest.approx(600)


@pytest.mark.parametrize("peer", catalog.PEERS, ids=lambda peer: peer.name)
def test_every_system_has_an_adapter_and_says_its_settings(peer: catalog.Peer) -> None:
    folder = "node" if peer.node else "systems"
    suffix = "mjs" if peer.node else "py"
    path = ROOT / "benchmarks" / folder / f"{peer.adapter}.{suffix}"
    assert path.exists()
    assert peer.settings


@pytest.mark.parametrize("measure", measures.MEASURES, ids=lambda measure: measure.name)
def test_every_measure_includes_ours(measure: Measure) -> None:
    names = [peer.name for peer in measures.peers_of(measure)]
    assert any(name.startswith(catalog.OURS) for name in names)


@pytest.mark.parametrize("bar", bars.BARS, ids=lambda bar: bar.text)
def test_every_bar_is_about_something_measured(bar: bars.Bar) -> None:
    for place in (bar.place, bar.other):
        if place:
            measure, system, _number = place
            takes_part = measures.BY_NAME[measure].systems
            assert takes_part(catalog.BY_NAME[system])


def test_quick_run_measures_what_exists() -> None:
    assert set(measures.QUICK) <= set(measures.BY_NAME)
    assert set(measures.QUICK_SYSTEMS) <= set(catalog.BY_NAME)


def test_every_measure_is_explained_in_the_docs() -> None:
    text = (ROOT / "docs" / "design" / "benchmarks.md").read_text()
    missing = [name for name in measures.BY_NAME if f"| `{name}` |" not in text]
    assert missing == []


def test_only_databases_of_the_benchmarks_are_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://a@host/shop")
    from benchmarks.settings import read_database

    assert read_database("postgres://a@host/shop")["NAME"] == "jobqueue_bench"
    url = "postgres://a@host/jobqueue_bench_oban"
    assert read_database(url)["NAME"] == "jobqueue_bench_oban"


def test_slow_systems_get_fewer_jobs() -> None:
    slow, fast = catalog.BY_NAME["django_tasks_db"], catalog.BY_NAME[catalog.OURS]
    assert count_for(slow, SCALE) < count_for(fast, SCALE)
    assert count_for(fast, SCALE) == SCALE.jobs


class Stub:
    """The parts of a system that planning needs."""

    def __init__(self, name: str) -> None:
        self.peer = catalog.BY_NAME[name]


def test_systems_take_turns_in_each_round() -> None:
    systems: Any = {name: Stub(name) for name in ("jobqueue", "bare", "celery")}
    planned = command.plan([measures.BY_NAME["drain"]], systems, SCALE)
    assert [peer.name for _, peer in planned] == ["jobqueue", "bare", "celery"] * 2


def test_time_left_is_estimated_from_earlier_durations() -> None:
    drain, latency = measures.BY_NAME["drain"], measures.BY_NAME["latency"]
    ours, bare = catalog.BY_NAME["jobqueue"], catalog.BY_NAME["bare"]
    clock = command.Clock([(drain, ours), (drain, bare), (latency, ours)])
    assert clock.left() == 2 * drain.seconds + latency.seconds
    clock.took["drain", "jobqueue"] = drain.seconds * 2
    assert clock.left() == 4 * drain.seconds + 2 * latency.seconds


def test_each_measure_gets_one_round_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def note(measure: Measure, *args: Any) -> str:
        asked.append(measure.name)
        return ""

    monkeypatch.setattr(command, "run_one", note)
    systems: Any = {"jobqueue": Stub("jobqueue")}
    chosen = [measures.BY_NAME["drain"], measures.BY_NAME["latency"]]
    scale = Scale(rounds=3, budget=-1)
    command.run(chosen, systems, scale, report.Results(scale={}))
    assert asked == ["drain", "latency"]


def test_a_system_without_redis_is_not_run_for_that_reason() -> None:
    results = report.Results(scale={})

    def run(system: Any, scale: Scale) -> Numbers:
        raise Unsupported("no redis-server")

    measure = Measure(
        name="drain", title="", text="", run=run, systems=lambda peer: True, seconds=1
    )
    stub: Any = Stub("celery")
    assert command.run_one(measure, stub, SCALE, results) == "not run: no redis-server"
    assert results.missing == {"drain": {"celery": "no redis-server"}}


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(SystemExit, match="No measure 'drian'; there are drain"):
        command.pick(measures.BY_NAME, "drian", "measure")


class Half(System):
    """A system that supports few operations."""

    def has_work(self) -> bool:
        return True

    def clear(self) -> None:
        raise ValueError("it is stuck")


def ask(*questions: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    lines = [json.dumps({"do": do, "with": values}) + "\n" for do, values in questions]
    answers = io.StringIO()
    agent.serve(Half(), io.StringIO("".join(lines)), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_agent_answers_with_values_reasons_and_errors() -> None:
    filling = {"finished": 1, "future": 1}
    value, reason, error = ask(("has_work", {}), ("fill", filling), ("clear", {}))
    assert value == {"value": True}
    assert "not kept in PostgreSQL" in reason["unsupported"]
    assert error["error"].endswith("ValueError: it is stuck\n")


def make_results() -> report.Results:
    results = report.Results(scale={}, machine={"commit": "abc"})
    for ours, theirs in ((100.0, 50.0), (120.0, 40.0), (110.0, 55.0)):
        results.add("drain", "jobqueue", {"jobs/s": ours, "jobs": 10})
        results.add("drain", "bare", {"jobs/s": theirs, "jobs": 10})
    results.versions = {"jobqueue": "1.0", "bare": "3.3"}
    results.not_run = {"celery": "no redis-server"}
    results.leave_out("drain", "oban", "a worker | ended")
    return results


def test_table_has_medians_spread_and_ratios_of_rounds() -> None:
    table = report.as_table(measures.BY_NAME["drain"], make_results())
    ours, theirs = table.splitlines()[2:4]
    assert ours == "| **django-jobqueue** | 110 | 100 to 120 |  | 10.0 |"
    assert "| 50.0 | 40.0 to 55.0 | 2.20 (2.00 to 3.00) |" in theirs


def test_systems_that_were_not_run_stay_in_the_table() -> None:
    page = report.as_page(make_results())
    assert "| Celery + redis | not run: no redis-server |" in page
    assert "| Oban for Python | not run: a worker \\| ended |" in page
    assert "| Celery + redis | – | not run: no redis-server |" in page


def test_bars_say_what_was_reached_and_what_was_not_measured() -> None:
    table = report.bars_table(make_results())
    assert "| drain: jobqueue / bare | ≥ 0.6 | 2.20 | reached |" in table
    assert "| drain: jobqueue / oban | ≥ 8 |  | not measured |" in table


def test_the_lowest_is_first_where_less_is_better() -> None:
    found = {"jobqueue": {"p50 ms": [3.0]}, "celery": {"p50 ms": [2.0]}}
    assert report.ordered(measures.BY_NAME["latency"], found) == ["celery", "jobqueue"]


def test_a_run_is_written_as_json_text_and_plots(tmp_path: Path) -> None:
    written = report.write(make_results(), tmp_path)
    assert [path.name for path in written] == [
        "results.json",
        "results.txt",
        "drain.svg",
    ]
    numbers = json.loads(written[0].read_text())["numbers"]
    assert numbers["drain"]["bare"]["jobs/s"] == [50.0, 40.0, 55.0]


def test_a_run_of_some_measures_can_keep_the_others(tmp_path: Path) -> None:
    report.write(make_results(), tmp_path)
    later = report.Results(scale={}, versions={"jobqueue": "2"})
    later.add("latency", "jobqueue", {"p50 ms": 3.0})

    earlier = report.read_results(tmp_path)
    assert earlier is not None
    later.keep_rest(earlier)

    assert set(later.numbers) == {"drain", "latency"}
    assert later.moments.keys() == {"drain", "latency"}
    assert later.versions["jobqueue"] == "2"
    again = report.Results(scale={})
    again.add("drain", "jobqueue", {"jobs/s": 1.0})
    again.keep_rest(later)
    # A measure is kept whole or not at all: ratios are valid within one run only.
    assert again.numbers["drain"] == {"jobqueue": {"jobs/s": [1.0]}}
    assert report.read_results(tmp_path / "nowhere") is None


def test_plots_are_well_formed_whatever_a_label_says() -> None:
    bar = Bar(label="<a & b>", value=2, low=1, high=4, text="2")
    root = ElementTree.fromstring(draw_bars("x < y", [bar]))
    assert "<a & b>" in [node.text for node in root.iter()]
