//! `GET /metrics`: true figures under documented names.

use crate::support::{
    get, metric, next_text, on_both_drivers, options, publish, publish_ok, request, start, until,
    websocket,
};
use crate::tls::Folder;
use std::collections::BTreeSet;

/// Names of metric families in the text.
fn families(text: &str) -> BTreeSet<String> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    kinds
        .map(|line| {
            let (name, kind) = line.split_once(' ').expect("a name and a type");
            if kind == "counter" {
                format!("{name}_total")
            } else {
                name.to_owned()
            }
        })
        .collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    // A family with labels is shown from its first value on, so there must be an endpoint and a proxy. Nobody listens there.
    let webhooks = "[[endpoints]]\nname = \"app\"\nurl = \"http://127.0.0.1:9/\"";
    let client = "[proxy.connect]\nenabled = true\nendpoint = \"http://127.0.0.1:9/\"";
    let folder = Folder::new("metrics", myriad_server::DriverChoice::Auto);
    folder.issue("own", "push.example");
    let server = start(myriad_server::Options {
        webhooks: Some(toml::from_str(webhooks).expect("a table")),
        client: Some(toml::from_str(client).expect("a table")),
        ..folder.options(myriad_server::DriverChoice::Auto)
    });
    assert_eq!(get(server.address(), "/healthz").status, 200);
    // A call of the API, for those that are counted by key and method.
    publish_ok(server.address(), r#"{"channel": "c", "data": 1}"#);
    let shown = families(&get(server.address(), "/metrics").body);
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    // The page has the crowd's, too, and those of a cluster and of an authority: tests/cluster and tests/acme compare these.
    let elsewhere = [
        "myriad_swarm_",
        "myriad_broker_",
        "myriad_nodes_",
        "myriad_tls_acme_",
    ];
    let rows = rows.filter(|name| !elsewhere.iter().any(|prefix| name.starts_with(prefix)));
    let documented: BTreeSet<String> = rows
        .map(|name| name.split('{').next().expect("a name").to_owned())
        .collect();
    let missing: Vec<_> = shown.symmetric_difference(&documented).collect();
    assert!(
        missing.is_empty(),
        "in one and not in the other: {missing:?}"
    );
}

on_both_drivers! {
    fn what_happened_is_counted(driver) {
        const CLIENTS: u64 = 5;
        let server = start(options(driver));
        let address = server.address();
        let value = |name: &str| metric(address, name);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| websocket(address, "/raw?channel=c")).collect();
        for _ in 0..3 {
            publish_ok(address, r#"{"channel": "c", "data": "0123456789"}"#);
        }
        assert_eq!(publish(address, "{").status, 400);
        assert_eq!(request(address, "GET", "/raw", "", "").status, 426);
        for client in &mut clients {
            for _ in 0..3 {
                next_text(client);
            }
        }
        // A shard adds up its figures at the end of its turn. By then clients may have read the deliveries.
        until("all deliveries are counted", || value("myriad_deliveries_total") >= 3 * CLIENTS);
        assert_eq!(value("myriad_upgrades_total"), CLIENTS);
        assert_eq!(value("myriad_publications_total"), 3);
        assert_eq!(value("myriad_deliveries_total"), 3 * CLIENTS);
        assert_eq!(value("myriad_upgrades_refused_total{reason=\"not_upgrade\"}"), 1);
        assert_eq!(value("myriad_api_requests_total{route=\"/api/publish\",status=\"200\"}"), 3);
        assert_eq!(value("myriad_api_requests_total{route=\"/api/publish\",status=\"400\"}"), 1);
        // Three frames of 12 bytes to each, and the heads before.
        assert!(value("myriad_sent_bytes_total") >= CLIENTS * 36);
        assert!(value("process_resident_memory_bytes") > 1 << 20);
        assert!(value("process_open_fds") > 5);
        until("the last delivery is timed", || value("myriad_publish_to_last_submit_seconds_count") == 3);
        for mut client in clients {
            client.close(None).expect("an open connection");
            while client.read().is_ok() {}
        }
        until("closes are counted", || value("myriad_closes_total{reason=\"client\"}") == CLIENTS);
    }
}

#[test]
fn the_text_is_whole_and_typed() {
    let server = start(options(myriad_server::DriverChoice::Auto));
    let answer = get(server.address(), "/metrics");
    assert!(
        answer
            .header("content-type")
            .expect("a content type")
            .starts_with("application/openmetrics-text")
    );
    assert!(answer.body.ends_with("# EOF\n"));
    let infinite = "myriad_turn_duration_seconds_bucket{le=\"+Inf\"} ";
    let count = "myriad_turn_duration_seconds_count ";
    let find = |prefix: &str| {
        answer
            .body
            .lines()
            .find_map(|line| line.strip_prefix(prefix))
            .expect("a line")
            .to_owned()
    };
    assert_eq!(find(infinite), find(count));
}

#[test]
fn limits_stand_beside_what_they_bound() {
    const MIB: u64 = 1 << 20;
    let channel = "history_bytes_max = \"7MiB\"";
    let server = start(myriad_server::Options {
        max_connections: Some(myriad_server::Count(123)),
        buffered_bytes_max: Some(myriad_server::Size(9 * MIB)),
        channel: Some(toml::from_str(channel).expect("a table")),
        ..options(myriad_server::DriverChoice::Auto)
    });
    let value = |name: &str| metric(server.address(), name);
    assert_eq!(value("myriad_connections_max"), 123);
    assert_eq!(value("myriad_buffered_max_bytes"), 9 * MIB);
    assert_eq!(value("myriad_unconnected_buffered_max_bytes"), 9 * MIB / 4);
    assert_eq!(value("myriad_history_max_bytes"), 7 * MIB);
    assert!(value("myriad_publications_in_flight_max_bytes") >= 16 * MIB);
}
