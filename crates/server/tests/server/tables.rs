//! More connections than one descriptor table holds, under epoll: each shard has a table of its own.

use crate::support::{
    Http, get, head, metric, next_text, options, publish_ok, start, until, websocket,
};
use myriad_reactor::descriptor_limit;
use myriad_server::{Count, DriverChoice, Options};

/// Replies, hand-overs and wakes cross tables here, where a descriptor's number means something else on every thread.
#[test]
fn shards_with_tables_of_their_own_serve_as_one() {
    const CLIENTS: u64 = 100;
    const PUBLICATIONS: u64 = 50;
    let table = descriptor_limit().expect("a limit");
    if table > 1 << 17 {
        eprintln!("not run: one descriptor table of {table} slots holds everything a test opens");
        return;
    }
    let wanted = Some(Count(2 * table as u64));
    let server = start(Options {
        max_connections: wanted,
        ..options(DriverChoice::Epoll)
    });
    assert!(server.shards() >= 3, "{}", server.shards());
    let address = server.address();
    // Every second one comes back from the control plane, from one table into another.
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            if number % 2 == 0 {
                return websocket(address, "/raw?channel=c");
            }
            let mut http = Http::connect(address);
            http.send(head("GET", "/healthz", "").as_bytes());
            assert_eq!(http.answer().status, 200);
            http.upgrade("/raw?channel=c")
        })
        .collect();
    assert_eq!(metric(address, "myriad_hand_backs_total"), CLIENTS / 2);
    let offsets: Vec<u64> = (0..PUBLICATIONS)
        .map(|number| publish_ok(address, &format!(r#"{{"channel": "c", "data": {number}}}"#)))
        .collect();
    assert!(offsets.is_sorted_by(|a, b| a < b));
    // A stray byte in any stream would break its framing.
    for client in &mut clients {
        for number in 0..PUBLICATIONS {
            assert_eq!(next_text(client), number.to_string());
        }
    }
    // A shard adds up its figures at the end of its turn. By then clients may have read the deliveries.
    until("all deliveries are counted", || {
        metric(address, "myriad_deliveries_total") == PUBLICATIONS * CLIENTS
    });
    // All tables are counted, not only the one of the thread that asks.
    assert!(metric(address, "process_open_fds") > CLIENTS + server.shards() as u64);
    assert_eq!(get(address, "/healthz").status, 200);
    drop(clients);
    server.stop();
}
