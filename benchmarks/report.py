"""The results of a run: a JSON file, a page of tables, one plot per measure.

Every number is the median of the rounds, with its minimum and maximum. Ratios divide
ours by theirs within one run: machines are shared and noisy.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bars import BARS, Place
from benchmarks.catalog import BY_NAME, OURS
from benchmarks.measures import MEASURES, peers_of
from benchmarks.measures.measure import Measure, Scale
from benchmarks.plots import Bar, draw_bars
from tests.venvs import ROOT

# {name of a number: its value in each round}
Series = dict[str, list[float]]


@dataclass
class Results:
    """The measured numbers, and the reasons for missing ones."""

    scale: dict[str, Any]
    numbers: dict[str, dict[str, Series]] = field(default_factory=dict)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    # Measure → time, commit and load of the machine.
    moments: dict[str, str] = field(default_factory=dict)

    def add(self, measure: str, system: str, numbers: dict[str, float]) -> None:
        if measure not in self.moments:
            self.moments[measure] = describe_moment()
        series = self.numbers.setdefault(measure, {}).setdefault(system, {})
        for name, value in numbers.items():
            series.setdefault(name, []).append(value)

    def keep_rest(self, earlier: Results) -> None:
        """Take over measures of an earlier run that this run does not have.

        A measure is taken over whole or not at all: ratios are valid only within one
        run.
        """
        ours = {*self.numbers, *self.missing}
        for name in ("numbers", "missing", "moments"):
            of_earlier, of_this = getattr(earlier, name), getattr(self, name)
            kept = {key: each for key, each in of_earlier.items() if key not in ours}
            setattr(self, name, {**kept, **of_this})
        self.versions = {**earlier.versions, **self.versions}
        later = {**earlier.not_run, **self.not_run}
        self.not_run = {k: v for k, v in later.items() if k not in self.versions}

    def leave_out(self, measure: str, system: str, reason: str) -> None:
        self.missing.setdefault(measure, {})[system] = reason


def new_results(scale: Scale, *, database: str) -> Results:
    return Results(scale=asdict(scale), machine=describe_machine(database))


def read_results(folder: Path) -> Results | None:
    """Return the results of an earlier run in a folder."""
    path = folder / "results.json"
    return Results(**json.loads(path.read_text())) if path.exists() else None


def describe_moment() -> str:
    """Return time, commit and load of the machine."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"{moment}, commit {commit.stdout.strip() or 'unknown'}, load {load}"


def describe_machine(database: str) -> dict[str, str]:
    """Return what the numbers depend on: machine, database, Python."""
    return {
        "processors": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "database": database,
    }


def write(results: Results, folder: Path) -> list[Path]:
    """Write the JSON file, the page and the plots; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    # Keep the order: ratios use the first number of a measure.
    text = json.dumps(asdict(results), indent=1)
    written = [folder / "results.json", folder / "results.txt"]
    written[0].write_text(text + "\n")
    written[1].write_text(as_page(results))
    for measure in measured(results):
        path = folder / f"{measure.name}.svg"
        path.write_text(as_plot(measure, results.numbers[measure.name]))
        written.append(path)
    return written


def measured(results: Results) -> list[Measure]:
    return [measure for measure in MEASURES if results.numbers.get(measure.name)]


def as_page(results: Results) -> str:
    """Return the tables that docs/design/benchmarks.md includes."""
    facts = "\n".join(f"- {name}: {value}" for name, value in results.machine.items())
    parts = [facts, systems_table(results), bars_table(results)]
    for measure in MEASURES:
        if measure.name in results.numbers or measure.name in results.missing:
            parts.append(as_section(measure, results))
    return "\n\n".join(parts) + "\n"


def as_section(measure: Measure, results: Results) -> str:
    parts = [f"### {measure.title}", measure.text]
    if measure.name in results.numbers:
        parts.append(f"![{measure.title}](benchmarks/{measure.name}.svg)")
    parts.append(as_table(measure, results))
    if measure.name in results.moments:
        parts.append(f"Begun {results.moments[measure.name]}.")
    return "\n\n".join(parts)


def systems_table(results: Results) -> str:
    rows = ["| system | version | settings |", "|---|---|---|"]
    for name, peer in BY_NAME.items():
        if name in results.versions:
            rows.append(
                f"| {peer.label} | {results.versions[name]} | {peer.settings} |"
            )
        elif name in results.not_run:
            reason = as_cell(results.not_run[name])
            rows.append(f"| {peer.label} | – | not run: {reason} |")
    return "\n".join(rows)


def bars_table(results: Results) -> str:
    """Return each bar with its measured value."""
    rows = ["| bar | wanted | measured | |", "|---|--:|--:|---|"]
    for bar in BARS:
        value = find(bar.place, results)
        if value is not None and bar.other:
            below = find(bar.other, results)
            value = value / below if below else None
        if value is None:
            cells = ["", "not measured"]
        else:
            cells = [as_text(value), "reached" if bar.is_reached(value) else "missed"]
        rows.append(_line([bar.text, bar.wanted, *cells]))
    return "\n".join(rows)


def find(place: Place, results: Results) -> float | None:
    """Return the median of a number, or None if it was not measured."""
    measure, system, name = place
    series = results.numbers.get(measure, {}).get(system)
    if not series:
        return None
    return median(series[name or next(iter(series))])


def as_table(measure: Measure, results: Results) -> str:
    """Return one row for each system of the measure, best first."""
    found = results.numbers.get(measure.name, {})
    missing = {**results.not_run, **results.missing.get(measure.name, {})}
    names = list(dict.fromkeys(name for series in found.values() for name in series))
    header = ["system", *names[:1], "lowest to highest", "ours / theirs", *names[1:]]
    rows = [_line(header), _line(["---", *["--:"] * (len(header) - 1)])]
    for system in ordered(measure, found):
        rows.append(_line(_cells(system, found, names)))
    for peer in peers_of(measure):
        if peer.name not in found and peer.name in missing:
            reason = f"not run: {as_cell(missing[peer.name])}"
            rows.append(_line([peer.label, reason, *[""] * (len(header) - 2)]))
    return "\n".join(rows)


def ordered(measure: Measure, found: dict[str, Series]) -> list[str]:
    """Return the systems of a measure, best first."""
    return sorted(
        found,
        key=lambda system: median(next(iter(found[system].values()))),
        reverse=measure.more_is_better,
    )


def _cells(system: str, found: dict[str, Series], names: list[str]) -> list[str]:
    series = found[system]
    values = series[names[0]]
    spread = f"{as_text(min(values))} to {as_text(max(values))}"
    others = [as_text(median(series[n])) if n in series else "" for n in names[1:]]
    label = BY_NAME[system].label
    name = f"**{label}**" if system.startswith(OURS) else label
    return [name, as_text(median(values)), spread, ratio(system, found), *others]


def ratio(system: str, found: dict[str, Series]) -> str:
    """Return ours divided by this system's; the range is that of single rounds."""
    ours_name = next((n for n in (OURS, f"{OURS}_sqlite") if n in found), None)
    if ours_name is None or system == ours_name:
        return ""
    ours = next(iter(found[ours_name].values()))
    theirs = next(iter(found[system].values()))
    pairs = [a / b for a, b in zip(ours, theirs, strict=False) if b]
    if not pairs or not median(theirs):
        return ""
    middle = as_text(median(ours) / median(theirs))
    return f"{middle} ({as_text(min(pairs))} to {as_text(max(pairs))})"


def as_plot(measure: Measure, found: dict[str, Series]) -> str:
    unit = next(iter(next(iter(found.values()))))
    bars = []
    for system in ordered(measure, found):
        values = next(iter(found[system].values()))
        bars.append(
            Bar(
                label=BY_NAME[system].label,
                value=median(values),
                low=min(values),
                high=max(values),
                text=as_text(median(values)),
                is_ours=system.startswith(OURS),
            )
        )
    return draw_bars(f"{measure.title} ({unit})", bars)


def median(values: list[float]) -> float:
    return statistics.median(values)


def as_text(value: float) -> str:
    """Return three significant digits, thousands with commas."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def as_cell(text: str) -> str:
    """Escape a text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")[:200]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
