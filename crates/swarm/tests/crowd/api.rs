//! Users of an API over HTTP against a server in Node.js: what it does wrong is in the report in the exact number, and requests are
//! repeated where HTTP lets clients do so, and nowhere else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::program::Program;
use crate::support::{drivers, read_body, read_head};
use myriad_swarm::{Config, Driver, Interrupt, LiveStyle, Outcome, Report, Scenario};
use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The server of `scenarios/servers/api.mjs`.
struct Api {
    address: SocketAddr,
    _program: Program,
}

impl Api {
    fn start(arguments: &[&str]) -> Self {
        let program = Program::start("node", "api.mjs", arguments);
        Self {
            address: program.address,
            _program: program,
        }
    }

    fn counts(&self) -> serde_json::Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = b"GET /count HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }
}

fn config(server: SocketAddr, driver: Driver, flows: &str) -> Config {
    let text = format!(
        "[terminals]\ncount = 20\nprotocol = \"http\"\ntargets = [\"http://{server}\"]\n\
         [arrival]\nretries = 0\n\
         [hold]\nduration = \"2s\"\nwarmup = \"200ms\"\nsettle = \"10s\"\n{flows}\n"
    );
    let scenario = Scenario::parse(Path::new("api.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    config
}

fn run(config: &Config) -> Report {
    let report = myriad_swarm::run(config, &Interrupt::new());
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (report.setup.connected, report.churn.lost),
        (20, 0),
        "{report:#?}"
    );
    report
}

const READ: &str = r#"
[[flows]]
name = "read"
rate = 200
path = "/items?page=${sequence}"
answer = '"items":'
"#;

const ADD: &str = r#"
[[flows]]
name = "add"
rate = 100
path = "/items"
send = '{"id":"${stamp}","by":${terminal}}'
status = [201]
answer = '"id":"mf'
"#;

const USERS: &str = r#"
[[flows]]
name = "read"
think = "20ms..100ms"
path = "/items?page=${sequence}"
[[flows]]
name = "missing"
think = "exp(100ms)"
path = "/items/none"
status = [404, 410]
"#;

#[test]
fn requests_are_answered_on_one_connection_each() {
    for driver in drivers() {
        let api = Api::start(&[]);
        let report = run(&config(api.address, driver, &format!("{READ}{ADD}")));
        assert_eq!(report.outcome, Outcome::Finished);
        assert!(report.errors.is_empty(), "{report:#?}");
        let counts = api.counts();
        for (flow, method) in report.flows.iter().zip(["GET", "POST"]) {
            assert!(flow.sent > 100, "{flow:?}");
            assert_eq!((flow.received, flow.missing), (flow.sent, 0), "{flow:?}");
            assert_eq!((flow.refused, flow.unanswered), (0, 0));
            assert_eq!(counts[method].as_u64(), Some(flow.sent), "{counts}");
            let (due, sent) = (flow.since_due_ms.p99, flow.since_sent_ms.p99);
            assert!(due >= sent && sent.is_some(), "{flow:?}");
        }
        // Those of the crowd, and the one that asked.
        assert_eq!(counts["connections"].as_u64(), Some(21), "{counts}");
        let http = report.http.unwrap();
        let sent: u64 = report.flows.iter().map(|flow| flow.sent).sum();
        assert_eq!((http.requests, http.answers), (sent, sent));
        assert_eq!((http.reopened, http.repeated), (0, 0));
    }
}

#[test]
fn users_think_between_requests_and_ask_one_thing_at_a_time() {
    for driver in drivers() {
        let api = Api::start(&[]);
        let report = run(&config(api.address, driver, USERS));
        assert!(report.errors.is_empty(), "{report:#?}");
        let [read, missing] = &report.flows[..] else {
            panic!("{:?}", report.flows)
        };
        // 20 users for 1.8 s, with pauses of 60 ms on average, less what the server needs.
        assert!((100..=640).contains(&read.sent), "{read:?}");
        assert!((50..=600).contains(&missing.sent), "{missing:?}");
        assert_eq!(read.received + missing.received, read.sent + missing.sent);
        assert_eq!(api.counts()["connections"].as_u64(), Some(21));
    }
}

#[test]
fn a_connection_that_ends_between_two_requests_is_made_again_for_the_next() {
    for driver in drivers() {
        // The server ends connections 50 ms after an answer; each user asks every 400 ms.
        let api = Api::start(&["--keep", "50"]);
        let slow = READ.replace("rate = 200", "rate = 50");
        let report = run(&config(api.address, driver, &slow));
        assert!(report.errors.is_empty(), "{report:#?}");
        let (read, http) = (&report.flows[0], report.http.as_ref().unwrap());
        assert_eq!((read.received, read.missing), (read.sent, 0), "{read:?}");
        assert!(http.reopened > 0, "{http:?}");
        let connections = api.counts()["connections"].as_u64().unwrap();
        assert_eq!(connections, 20 + http.reopened + 1, "{http:?}");
    }
}

#[test]
fn what_the_server_refuses_is_refused_in_the_exact_number() {
    for driver in drivers() {
        let api = Api::start(&["--fail", "10"]);
        let report = run(&config(api.address, driver, READ));
        let (read, counts) = (&report.flows[0], api.counts());
        assert_eq!(counts["fail"].as_u64(), Some(read.refused), "{counts}");
        assert!(read.refused > 0);
        assert_eq!(read.received, read.sent - read.refused);
        assert_eq!(report.errors.get("call_500"), Some(&read.refused));
        let said = &report.server_said["call_500"];
        assert!(
            said.contains("read: status 500") && said.contains("out of order"),
            "{said}"
        );
    }
}

#[test]
fn a_request_is_repeated_behind_408_whatever_it_does() {
    for driver in drivers() {
        let api = Api::start(&["--timeout", "7"]);
        let report = run(&config(api.address, driver, &format!("{READ}{ADD}")));
        let (counts, http) = (api.counts(), report.http.as_ref().unwrap());
        assert!(http.repeated > 0, "{http:?}");
        // A repetition may be the seventh request again: it is not repeated.
        let refused: u64 = report.flows.iter().map(|flow| flow.refused).sum();
        let timeouts = http.repeated + refused;
        assert_eq!(counts["timeout"].as_u64(), Some(timeouts), "{counts}");
        for flow in &report.flows {
            assert_eq!(flow.received + flow.refused, flow.sent, "{flow:?}");
            assert!(flow.refused * 10 < flow.sent, "{flow:?}");
        }
        let sent: u64 = report.flows.iter().map(|flow| flow.sent).sum();
        assert_eq!(http.requests, sent + http.repeated);
    }
}

#[test]
fn on_a_connection_that_ends_only_what_may_be_done_twice_is_repeated() {
    for driver in drivers() {
        // Not each seventh: two reads and one addition come in turn, so that with a repetition it would always be the same of them.
        let api = Api::start(&["--drop", "5"]);
        let report = run(&config(api.address, driver, &format!("{READ}{ADD}")));
        let (counts, http) = (api.counts(), report.http.as_ref().unwrap());
        let [read, add] = &report.flows[..] else {
            panic!("{:?}", report.flows)
        };
        assert!(http.repeated > 0 && add.unanswered > 0, "{report:#?}");
        // What was posted is never sent again.
        assert_eq!(counts["POST"].as_u64(), Some(add.sent), "{counts}");
        assert_eq!(add.received, add.sent - add.unanswered);
        assert_eq!(counts["GET"].as_u64(), Some(read.sent + http.repeated));
        let dropped = counts["drop"].as_u64().unwrap();
        let unanswered = read.unanswered + add.unanswered;
        assert_eq!(dropped, http.repeated + unanswered, "{report:#?}");
        assert_eq!(report.errors.get("call_unanswered"), Some(&unanswered));
    }
}

#[test]
fn an_answer_that_is_cut_off_is_no_answer() {
    for driver in drivers() {
        let api = Api::start(&["--cut", "9"]);
        let report = run(&config(api.address, driver, READ));
        let (read, counts) = (&report.flows[0], api.counts());
        assert_eq!(counts["cut"].as_u64(), Some(read.unanswered), "{report:#?}");
        assert_eq!(read.received, read.sent - read.unanswered);
        let said = &report.server_said["call_unanswered"];
        assert!(
            said.contains("the connection ended within the answer"),
            "{said}"
        );
    }
}

/// The heads of requests that came, in their order.
type Heads = Arc<Mutex<Vec<String>>>;

/// A server that does with each request what `serve` says, which gets the connection, the head and the number of the request from 0.
/// False: it ends the connection. Bodies are for `serve` to read.
fn server(
    serve: impl Fn(&mut TcpStream, &str, usize) -> bool + Send + Sync + 'static,
) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, serve) = (Heads::default(), Arc::new(serve));
    let shared = Arc::clone(&heads);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, heads) = (stream.unwrap(), Arc::clone(&shared));
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let number = {
                        let mut heads = heads.lock().unwrap();
                        heads.push(head.clone());
                        heads.len() - 1
                    };
                    if !serve(&mut stream, &head, number) {
                        break;
                    }
                }
            });
        }
    });
    (address, heads)
}

/// A server that answers each request as it is told, by its number from 0.
fn scripted(answer: fn(usize) -> &'static str) -> (SocketAddr, Heads) {
    server(move |stream, head, number| {
        read_body(stream, head);
        let said = answer(number);
        stream.write_all(said.as_bytes()).is_ok() && !said.contains("close")
    })
}

const NOTHING: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[test]
fn what_a_server_says_between_two_requests_ends_the_connection() {
    let slow = READ
        .replace("rate = 200", "rate = 50")
        .replace("answer = ", "# ");
    for (said, is_fault) in [
        // As Node.js and HAProxy say that they have waited for too long.
        (
            "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n",
            false,
        ),
        (NOTHING, true),
    ] {
        for driver in drivers() {
            let (address, _) = server(move |stream, _, _| {
                let pieces = [NOTHING, &said[..10], &said[10..]];
                pieces.iter().all(|piece| {
                    let is_said = stream.write_all(piece.as_bytes()).is_ok();
                    // Each user asks every 400 ms.
                    std::thread::sleep(Duration::from_millis(20));
                    is_said
                }) && is_fault
            });
            let report = run(&config(address, driver, &slow));
            let (read, http) = (&report.flows[0], report.http.as_ref().unwrap());
            assert_eq!((read.received, read.missing), (read.sent, 0), "{read:?}");
            assert!(http.reopened > 0, "{http:?}");
            let faults = report.errors.get("answer_invalid").copied();
            assert_eq!(faults.is_some_and(|it| it > 0), is_fault, "{report:#?}");
            assert_eq!(report.errors.len(), usize::from(is_fault), "{report:#?}");
        }
    }
}

#[test]
fn more_than_the_answer_is_a_fault_and_ends_the_connection() {
    let (address, _) = scripted(|_| "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nyes");
    let flow = "[[flows]]\nname = 'ask'\nrate = 50\npath = '/a'\nanswer = '^ye$'";
    for driver in drivers() {
        let report = run(&config(address, driver, flow));
        let (ask, http) = (&report.flows[0], report.http.as_ref().unwrap());
        assert_eq!((ask.received, ask.missing), (ask.sent, 0), "{ask:?}");
        assert_eq!(report.errors.get("answer_invalid"), Some(&ask.sent));
        assert_eq!(report.errors.len(), 1, "{report:#?}");
        let said = &report.server_said["answer_invalid"];
        assert!(said.contains("without a request: s"), "{said}");
        assert!(http.reopened > 0, "{http:?}");
    }
}

#[test]
fn a_408_counts_even_if_the_connection_breaks_behind_its_head() {
    let flow = "[[flows]]\nname = 'add'\nrate = 100\npath = '/add?n=${sequence}'\nsend = 'more'";
    for driver in drivers() {
        let seen: Mutex<HashSet<String>> = Mutex::default();
        let (address, heads) = server(move |stream, head, _| {
            let line = head.lines().next().unwrap().to_owned();
            let is_first = seen.lock().unwrap().insert(line.clone());
            if is_first && (line.contains("0 HTTP") || line.contains("5 HTTP")) {
                // The body is not read, so the connection is reset.
                let said = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n";
                stream.write_all(said).unwrap();
                return false;
            }
            read_body(stream, head);
            stream.write_all(NOTHING.as_bytes()).is_ok()
        });
        let report = run(&config(address, driver, flow));
        let (add, http) = (&report.flows[0], report.http.as_ref().unwrap());
        assert!(report.errors.is_empty(), "{report:#?}");
        assert_eq!((add.received, add.missing), (add.sent, 0), "{add:?}");
        assert!(http.repeated > 0, "{http:?}");
        let came = heads.lock().unwrap().len() as u64;
        assert_eq!(came, add.sent + http.repeated, "{http:?}");
    }
}

#[test]
fn what_was_posted_with_a_key_may_be_sent_again() {
    let keyed = format!("{ADD}headers = {{ Idempotency-Key = '${{stamp}}' }}\n");
    for driver in drivers() {
        let api = Api::start(&["--drop", "5"]);
        let report = run(&config(api.address, driver, &format!("{READ}{keyed}")));
        let (counts, http) = (api.counts(), report.http.as_ref().unwrap());
        let add = &report.flows[1];
        let posted = counts["POST"].as_u64().unwrap();
        assert!(posted > add.sent && http.repeated > 0, "{report:#?}");
        let asked = posted + counts["GET"].as_u64().unwrap();
        let sent: u64 = report.flows.iter().map(|flow| flow.sent).sum();
        assert_eq!(asked, sent + http.repeated, "{counts}");
    }
}

#[test]
fn users_may_have_a_connection_for_each_request() {
    let closing = format!("{READ}headers = {{ Connection = 'close' }}\n");
    let more = "[churn]\nrate = \"100%/s\"\n[[storm]]\nat = \"1s\"\nshare = \"50%\"";
    for driver in drivers() {
        let api = Api::start(&[]);
        let report = run(&config(api.address, driver, &closing));
        assert!(report.errors.is_empty(), "{report:#?}");
        let connections = api.counts()["connections"].as_u64();
        assert_eq!(connections, Some(report.flows[0].sent + 1));
        // Those without a connection leave like others.
        let report = run(&config(api.address, driver, &format!("{closing}{more}")));
        assert!(report.errors.is_empty(), "{report:#?}");
        assert!(report.churn.churned > 0, "{report:#?}");
        // One that is just making its connection cannot be dropped.
        assert!(report.comeback.unwrap().storms[0].dropped > 0);
    }
}

#[test]
fn answers_have_any_form_that_http_has() {
    let forms = |number: usize| match number % 6 {
        0 => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n",
        1 => "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nyes, until the end",
        2 => "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes",
        3 => "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nyes",
        4 => "HTTP/1.0 200 OK\r\ncontent-length: 3\r\nx: close\r\n\r\nyes",
        _ => "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes",
    };
    let flow = "[[flows]]\nname = 'ask'\nrate = 200\npath = '/a'\nanswer = '^yes'";
    for driver in drivers() {
        let (address, _) = scripted(forms);
        let report = run(&config(address, driver, flow));
        let ask = &report.flows[0];
        assert!(report.errors.is_empty(), "{report:#?}");
        assert_eq!((ask.received, ask.missing), (ask.sent, 0), "{ask:?}");
        assert!(report.http.unwrap().reopened > 20);
    }
}

#[test]
fn a_request_has_what_the_scenario_says() {
    let (address, heads) = scripted(|_| "HTTP/1.1 204 No Content\r\n\r\n");
    let flow = "[[flows]]\nname = 'put'\nrate = 50\nmethod = 'PUT'\npath = '/rooms/${group}?n=${sequence}'\n\
                send = 'text of ${terminal}'\nheaders = { X-User = 'u${terminal}', Content-Type = 'text/plain' }";
    let mut config = config(address, drivers()[0], flow);
    let base = format!("http://{address}/v1/?x=y");
    config.targets = vec![myriad_swarm::Target::parse(&base).unwrap()];
    config.headers = vec![("x-all".to_owned(), "yes".to_owned())];
    let report = run(&config);
    assert!(report.errors.is_empty(), "{report:#?}");
    let heads = heads.lock().unwrap();
    let head = heads.iter().find(|head| head.contains("X-User: u7\r\n"));
    let head = head.or_else(|| heads.iter().find(|head| head.contains("x-user: u7\r\n")));
    let head = head.unwrap();
    assert!(head.starts_with("PUT /v1/rooms/0?n="), "{head}");
    for wanted in [
        format!("\r\nhost: {address}\r\n"),
        "\r\ncontent-type: text/plain\r\n".to_owned(),
        "\r\nx-all: yes\r\n".to_owned(),
        "\r\ncontent-length: 9\r\n".to_owned(),
    ] {
        assert!(head.contains(&wanted), "{head}");
    }
}

#[test]
fn a_request_without_an_answer_is_given_up_and_its_connection_with_it() {
    let (address, _) = scripted(|number| match number % 5 {
        0 => "",
        _ => NOTHING,
    });
    let flow = "[[flows]]\nname = 'ask'\nrate = 50\npath = '/a'";
    for driver in drivers() {
        let mut config = config(address, driver, flow);
        config.settle = Duration::from_secs(1);
        let report = run(&config);
        let ask = &report.flows[0];
        assert!(ask.unanswered > 0, "{report:#?}");
        assert_eq!(ask.received, ask.sent - ask.unanswered);
        assert_eq!(report.errors.get("call_unanswered"), Some(&ask.unanswered));
    }
}

#[test]
fn users_that_leave_take_their_requests_with_them() {
    let api = Api::start(&[]);
    for driver in drivers() {
        let more = format!(
            "{USERS}\n[churn]\nrate = \"100%/s\"\n[[storm]]\nat = \"1s\"\nshare = \"50%\"\nclose = \"orderly\""
        );
        let report = run(&config(api.address, driver, &more));
        assert!(report.errors.is_empty(), "{report:#?}");
        assert!(report.churn.churned > 0, "{report:#?}");
        for flow in &report.flows {
            assert!(flow.sent > 30, "{flow:?}");
            assert_eq!(flow.received + flow.away, flow.sent, "{flow:?}");
            assert_eq!((flow.refused, flow.unanswered), (0, 0), "{flow:?}");
        }
    }
}

/// What is said of a scenario that cannot be run, with clients that speak this and with these keys.
fn refused(protocol: &str, target: &str, more: &str) -> String {
    let text = format!(
        "[hold]\nduration = \"10s\"\n[terminals]\nprotocol = \"{protocol}\"\ntargets = [\"{target}\"]\n{more}"
    );
    match Scenario::parse(Path::new("api.toml"), &text, &[]) {
        Err(error) => error.to_string(),
        Ok(scenario) => match myriad_swarm::run(&scenario.config, &Interrupt::new()) {
            Err(myriad_swarm::RunError::Config(error)) => scenario.explain(error).to_string(),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn what_users_of_an_api_do_not_have_is_told_at_its_key() {
    let of_http = |more: &str| refused("http", "http://127.0.0.1:1/", more);
    let flow = |more: &str| format!("[[flows]]\nname = 'a'\nrate = 1\n{more}");
    for (more, wanted) in [
        (
            flow("send = 'a ${stamp}'"),
            "flows: the key `path` is missing",
        ),
        (
            flow("path = 'items'"),
            "flows[0].path: 'items' is no path of a request",
        ),
        (flow("path = '/a b'"), "flows[0].path: '/a b' is no path"),
        (
            flow("path = '/a'\nstatus = [600]"),
            "flows[0].status: 600 is no status",
        ),
        (
            flow("path = '/a'\nexpect = 'group'"),
            "flows[0].expect: clients of http hear nothing",
        ),
        (
            flow("path = '/a'\nmethod = 'CONNECT'"),
            "flows[0].method: 'CONNECT' is no method",
        ),
        (
            flow("path = '/a'\nheaders = { Content-Length = '3' }"),
            "flows[0].headers: 'Content-Length' is written as",
        ),
        (
            flow("path = '/a'\nconnections = 3"),
            "`connections` needs `url`",
        ),
        (
            "[opening]\nsend = ['a']".to_owned(),
            "opening: messages of [opening] do not go with http",
        ),
        ("channels = ['a']".to_owned(), "have no channels"),
        (
            "[heartbeat]\nevery = '1s'".to_owned(),
            "heartbeat.every is for clients of WebSocket",
        ),
        (
            "[stall]\nshare = '1%'".to_owned(),
            "a request is answered once",
        ),
    ] {
        let said = of_http(&more);
        assert!(said.contains(wanted), "{more}: {said}");
    }
    let error = refused("raw", "ws://127.0.0.1:1/", &flow("path = '/a'"));
    assert!(
        error.contains("flows[0].path: clients of raw send no requests"),
        "{error}"
    );
}
