"""What the crowd writes beside its table, read by others' tools: histograms, schema, comparison."""

import json

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
import jsonschema

from server import ROOT, run

HOUR_US = 3_600_000_000


def of_log(path):
    """Histograms of a log, summed by tag."""
    sums = {}
    reader = HistogramLogReader(str(path), HdrHistogram(1, HOUR_US, 3))
    while interval := reader.get_next_interval_histogram():
        sums.setdefault(interval.get_tag(), HdrHistogram(1, HOUR_US, 3)).add(interval)
    return sums


def of_distribution(path):
    """Rows of a percentile distribution: value, percentile, count."""
    lines = path.read_text().splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [line.split() for line in lines[2:] if not line.startswith("#")]
    return [(float(row[0]), float(row[1]), int(row[2])) for row in rows]


def written(serve, folder):
    server = serve()
    folder.mkdir()
    code, _, log = run(
        "swarm", f"ws://{server.host}:{server.port}/echo", "-c", "30", "--echo", "300/s", "--warmup", "500ms", "-d", "2500ms",
        "--live", "off", "--json", str(folder / "report.json"), "--hlog", str(folder / "times.hlog"),
        "--hgrm", str(folder / "times.hgrm"), "--threshold", "echo: p(95) < 60000",
    )
    assert code == 0, log
    return json.loads((folder / "report.json").read_text())


def test_histograms_are_read_by_hdrhistogram(serve, tmp_path):
    report = written(serve, tmp_path / "run")
    echo = report["echo"]
    times = of_log(tmp_path / "run" / "times.hlog")["echo"]
    assert times.get_total_count() == echo["received"]
    # A reader takes the middle or the end of a bucket, which is 0.1% wide.
    for percentile, name in [(50, "p50"), (99, "p99")]:
        wanted = echo["round_trip_ms"][name] * 1000
        assert abs(times.get_value_at_percentile(percentile) - wanted) <= wanted * 0.002 + 1
    rows = of_distribution(tmp_path / "run" / "times.hgrm")
    assert rows[-1][1:] == (1.0, echo["received"])
    assert abs(rows[-1][0] - echo["round_trip_ms"]["max"]) <= rows[-1][0] * 0.002


def test_the_report_is_as_its_schema_says(serve, tmp_path):
    report = written(serve, tmp_path / "run")
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.validate(report, schema, cls=jsonschema.Draft202012Validator)


def test_two_runs_are_compared(serve, tmp_path):
    report = written(serve, tmp_path / "run")
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(report))
    code, table, _ = run("swarm", "compare", str(before), str(before))
    assert code == 0 and "No figure got worse" in table
    report["errors"] = {"refused": 3}
    after.write_text(json.dumps(report))
    code, table, _ = run("swarm", "compare", str(before), str(after))
    assert code == 99 and "worse" in table
    code, _, log = run("swarm", "compare", str(before), str(tmp_path / "none.json"))
    assert code == 104 and "none.json cannot be read" in log
