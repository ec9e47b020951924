"""deploy/grafana/myriad.json has what Grafana needs. There is no Grafana here, so this is a schema of our own."""

import re

import pytest

from files import dashboard, panels

# Names of Grafana's units that are used, with what they show.
UNITS = {"short", "none", "cps", "reqps", "s", "bytes", "Bps", "percentunit"}
# Variables of Grafana itself.
BUILT_IN = {"__rate_interval", "__range", "__all"}
COLUMNS = 24


def overlap(one, other):
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h")))


@pytest.fixture(scope="module")
def board():
    return dashboard()


def test_it_can_be_imported(board):
    # Grafana makes an id of its own, and asks for the data source that __inputs names.
    assert board["id"] is None and board["uid"] and board["title"]
    assert board["schemaVersion"] >= 36, "the first one of Grafana 10 is 38, that of 9 is 36"
    assert [(one["name"], one["type"], one["pluginId"]) for one in board["__inputs"]] == [("DS_PROMETHEUS", "datasource", "prometheus")]
    needed = {one["id"] for one in board["__requires"]}
    assert needed >= {panel["type"] for _, panel in panels()} | {"grafana", "prometheus"}


def test_variables(board):
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    # The choice at the import is the first value.
    assert variables["datasource"]["current"]["value"] == "${DS_PROMETHEUS}"
    for name in ("job", "instance"):
        assert variables[name]["datasource"]["uid"] == "${datasource}"
        assert variables[name]["multi"] and variables[name]["includeAll"]
    assert "$job" in variables["instance"]["query"]["query"]
    used = set(re.findall(r"\$\{?(\w+)", str({**board, "__inputs": None})))
    assert used - BUILT_IN == {"DS_PROMETHEUS", *variables}


def test_panels_have_their_own_numbers_and_places(board):
    everything = [one for panel in board["panels"] for one in (panel, *panel.get("panels", []))]
    numbers = [one["id"] for one in everything]
    assert len(set(numbers)) == len(numbers)
    for place in (one["gridPos"] for one in everything):
        assert 0 <= place["x"] and place["x"] + place["w"] <= COLUMNS and place["h"] > 0, place
    for index, one in enumerate(everything):
        for other in everything[index + 1 :]:
            assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def test_rows(board):
    rows = [panel for panel in board["panels"] if panel["type"] == "row"]
    assert board["panels"][0] == rows[0], "every panel has a row"
    for row in rows:
        # An open row has its panels behind it, a folded one inside.
        assert bool(row["panels"]) == row["collapsed"], row["title"]
    folded = [row["title"] for row in rows if row["collapsed"]]
    assert folded == ["Calls to the application, and webhooks", "The cluster and NATS", "TLS"]


def test_every_panel_asks_and_explains():
    titles = set()
    for row, panel in panels():
        name = f"{row}: {panel['title']}"
        assert name not in titles, name
        titles.add(name)
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, name
        assert panel["targets"], name
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"]), name
        references = [target["refId"] for target in panel["targets"]]
        assert references == [chr(ord("A") + index) for index in range(len(references))], name
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, name
        # What is bad, and what to do.
        assert len(panel["description"]) > 25 and panel["description"].endswith("."), name
    assert len(titles) > 60


def test_shares_and_times_have_units_that_fit():
    for row, panel in panels():
        unit = panel["fieldConfig"]["defaults"]["unit"]
        first = panel["targets"][0]["expr"]
        if "_seconds_bucket" in first or re.match(r"\w+( by \(\w+(, \w+)*\))? \(?\w+_seconds\{", first):
            assert unit == "s", panel["title"]
        if unit == "Bps":
            assert all("rate(" in target["expr"] and "_bytes_total" in target["expr"] for target in panel["targets"]), panel["title"]
        if unit == "bytes":
            assert all("_bytes{" in target["expr"] and "rate(" not in target["expr"] for target in panel["targets"]), panel["title"]
        if unit in ("cps", "reqps"):
            assert "rate(" in first, panel["title"]
