//! Clients of plain TCP against a chat server in Python's asyncio, with every way to tell messages apart: what the server
//! does wrong is in the report in the exact number.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::program::Program;
use crate::support::{SHORT_SETTLE, drivers};
use myriad_swarm::{
    Config, Driver, Echo, Interrupt, LiveStyle, Outcome, Protocol, Report, Scenario, Target,
};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// The server of `scenarios/servers/chat.py`.
struct Chat {
    address: SocketAddr,
    _program: Program,
}

impl Chat {
    fn start(arguments: &[&str]) -> Self {
        let program = Program::start("python3", "chat.py", arguments);
        Self {
            address: program.address,
            _program: program,
        }
    }

    /// How often each kind of message came, where it speaks lines.
    fn counts(&self) -> serde_json::Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"count\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

fn config(server: SocketAddr, driver: Driver, more: &str) -> Config {
    let text = format!(
        "[terminals]\ncount = 20\nprotocol = \"tcp\"\ntargets = [\"tcp://{server}\"]\n\
         [arrival]\nretries = 0\nhandshake-timeout = \"5s\"\n\
         [hold]\nduration = \"2s\"\nwarmup = \"500ms\"\nsettle = \"10s\"\n{more}\n"
    );
    let scenario = Scenario::parse(Path::new("tcp.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    config
}

fn run(config: &Config) -> Report {
    myriad_swarm::run(config, &Interrupt::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// What clients of the chat say. Each flow has its stamp where it says.
const CHAT: &str = r#"
[groups]
count = 4
[opening]
send = ['login:user-${terminal}', 'join:room-${group}']
answers = ['^welcome:user-[0-9]+\x00*$', '^joined:']
[[replies]]
to = '^ping:([0-9]+)'
send = 'pong:${match}'
[heartbeat]
every = "3s"
send = 'beat'
answer = '^alive'
[[flows]]
name = "chat"
rate = 200
send = 'say:${stamp}:${random:8}'
stamp-regex = '^say:([^:]+)'
[[flows]]
name = "question"
rate = 100
send = 'ask:${stamp}'
stamp-offset = 7
expect = "sender"
"#;

/// Framings: for the server, and in the scenario.
const FRAMINGS: [(&str, &str); 9] = [
    ("lines", ""),
    (
        "nul",
        "[framing]\nby = \"delimiter\"\ndelimiter = '${hex:00}'",
    ),
    ("size:48", "[framing]\nby = \"size\"\nsize = 48"),
    ("length:4:big:rest:0", "[framing]\nby = \"length\""),
    (
        "length:2:little:rest:0",
        "[framing]\nby = \"length\"\nlength-bytes = 2\nlength-form = \"little\"",
    ),
    (
        "length:1:big:itself:0",
        "[framing]\nby = \"length\"\nlength-bytes = 1\nlength-counts = \"itself\"",
    ),
    (
        "length:8:little:itself:0",
        "[framing]\nby = \"length\"\nlength-bytes = 8\nlength-form = \"little\"\nlength-counts = \"itself\"",
    ),
    (
        "length:4:big:all:3",
        "[framing]\nby = \"length\"\nlength-at = 3\nlength-counts = \"all\"",
    ),
    (
        "length:varint:big:rest:0",
        "[framing]\nby = \"length\"\nlength-form = \"varint\"",
    ),
];

#[test]
fn clients_talk_in_every_framing_and_nothing_is_lost() {
    for (index, (framing, section)) in FRAMINGS.into_iter().enumerate() {
        let drivers = drivers();
        let driver = drivers[index % drivers.len()];
        let chat = Chat::start(&[framing]);
        let report = run(&config(chat.address, driver, &format!("{section}\n{CHAT}")));
        assert_eq!(report.outcome, Outcome::Finished, "{framing}: {report:#?}");
        assert_eq!((report.setup.connected, report.churn.lost), (20, 0));
        assert!(report.errors.is_empty(), "{framing}: {:?}", report.errors);
        let [chat, question] = &report.flows[..] else {
            panic!("{:?}", report.flows)
        };
        assert!(chat.sent > 0 && question.sent > 0, "{framing}: {report:#?}");
        assert_eq!(
            (chat.received, chat.expected),
            (chat.sent * 5, chat.sent * 5)
        );
        assert_eq!(question.received, question.sent, "{framing}");
        let flows = [chat, question];
        let faults = flows.map(|it| it.missing + it.duplicated + it.out_of_order + it.unexpected);
        assert_eq!(faults, [0, 0], "{framing}: {report:#?}");
        let pings = &report.pings;
        assert!(pings.heartbeats_sent > 0, "{framing}: {pings:?}");
        assert!(pings.heartbeats_answered > 0, "{framing}: {pings:?}");
    }
}

#[test]
fn what_the_server_drops_is_missing_in_the_exact_number() {
    for driver in drivers() {
        let chat = Chat::start(&["lines", "--drop", "10"]);
        let mut config = config(chat.address, driver, CHAT);
        config.settle = SHORT_SETTLE;
        let report = run(&config);
        let counts = chat.counts();
        let said = &report.flows[0];
        assert_eq!(counts["say"].as_u64(), Some(said.sent), "{counts}");
        assert_eq!(counts["dropped"].as_u64(), Some(said.missing), "{counts}");
        assert!(said.missing > 0);
        assert_eq!(said.received, said.expected - said.missing);
        assert_eq!(
            (counts["login"].as_u64(), counts["pong"].as_u64()),
            (Some(20), Some(20))
        );
        assert!(counts["beat"].as_u64() >= Some(report.pings.heartbeats_answered));
    }
}

#[test]
fn whoever_is_not_answered_on_opening_is_not_connected() {
    for driver in drivers() {
        let chat = Chat::start(&["lines", "--no-welcome", "user-7"]);
        let report = run(&config(chat.address, driver, CHAT));
        assert_eq!(report.setup.connected, 19);
        assert_eq!(
            report.errors.get("session_timeout"),
            Some(&1),
            "{report:#?}"
        );
    }
}

#[test]
fn a_message_over_the_bound_is_an_error_of_its_own_with_an_example() {
    let large = "[opening]\nsend = ['burst:5000']";
    for (framing, section, said) in [
        (
            "lines",
            "[framing]\nby = \"delimiter\"\nmessage-max = 1000",
            "bytes, and 1000 are the most; it begins with ....",
        ),
        (
            "length:4:big:rest:0",
            "[framing]\nby = \"length\"\nmessage-max = 1000",
            r"a message of 5000 bytes, and 1000 are the most; it begins with \x00\x00\x13\x88....",
        ),
    ] {
        for driver in drivers() {
            let chat = Chat::start(&[framing]);
            let report = run(&config(
                chat.address,
                driver,
                &format!("{section}\n{large}"),
            ));
            assert_eq!((report.setup.connected, report.churn.lost), (20, 20));
            assert_eq!(report.errors.get("message_too_large"), Some(&20));
            let example = &report.server_said["message_too_large"];
            assert!(example.contains(said), "{example}");
        }
    }
}

#[test]
fn a_wrong_framing_is_told_from_a_server_that_says_nothing() {
    let chat = Chat::start(&["lines"]);
    // The first four bytes of `joined:a` are no length.
    let section = r#"
        [framing]
        by = "length"
        [opening]
        send = ["\njoin:a\n"]
        answers = ["welcome"]
    "#;
    let report = run(&config(chat.address, drivers()[0], section));
    assert_eq!(report.setup.connected, 0);
    assert_eq!(
        report.errors.get("message_too_large"),
        Some(&20),
        "{report:#?}"
    );
    let example = &report.server_said["message_too_large"];
    assert!(example.contains("it begins with joined:a"), "{example}");
}

#[test]
fn echoes_go_over_plain_tcp_too() {
    // A server that sends back whatever comes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    for driver in drivers() {
        let target = Target::parse(&format!("tcp://{address}")).unwrap();
        let mut config = Config::new(vec![target], 10);
        config.protocol = Protocol::Tcp;
        config.driver = Some(driver);
        config.live = LiveStyle::Off;
        config.duration = Some(Duration::from_secs(1));
        let mut echo = Echo::new(200.0);
        echo.warmup = Duration::ZERO;
        echo.payload_bytes = 5000;
        config.echo = Some(echo);
        let report = run(&config);
        let echo = report.echo.as_ref().unwrap();
        assert!(echo.received > 0, "{report:#?}");
        assert_eq!((echo.lost, echo.errors), (0, 0));
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

#[test]
fn clients_that_leave_end_their_connections_in_order_and_come_back() {
    let chat = Chat::start(&["lines"]);
    for driver in drivers() {
        let more = format!(
            "{CHAT}\n[churn]\nrate = \"50%/s\"\n[[storm]]\nat = \"1s\"\nshare = \"50%\"\nclose = \"orderly\""
        );
        let report = run(&config(chat.address, driver, &more));
        assert_eq!((report.setup.connected, report.churn.lost), (20, 0));
        assert!(report.churn.churned > 0, "{report:#?}");
        let comeback = report.comeback.as_ref().unwrap();
        assert!(comeback.back > 0, "{comeback:?}");
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

fn refused(more: &str) -> String {
    let address = ([127, 0, 0, 1], 1).into();
    let text = format!("[hold]\nduration = \"10s\"\n[terminals]\nprotocol = \"tcp\"\n{more}");
    let text = match more.contains("targets") {
        true => text,
        false => text.replacen(
            "[terminals]\n",
            &format!(
                "[terminals]\ntargets = [\"tcp://{}\"]\n",
                SocketAddr::to_string(&address)
            ),
            1,
        ),
    };
    let scenario = Scenario::parse(Path::new("tcp.toml"), &text, &[]);
    match scenario {
        Err(error) => error.to_string(),
        Ok(scenario) => match myriad_swarm::run(&scenario.config, &Interrupt::new()) {
            Err(myriad_swarm::RunError::Config(error)) => scenario.explain(error).to_string(),
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn what_does_not_go_over_plain_tcp_is_told_at_its_key() {
    let flow = |send: &str| format!("[[flows]]\nname = 'a'\nrate = 1\nsend = {send}");
    for (more, wanted) in [
        (
            "targets = ['ws://127.0.0.1:1/']".to_owned(),
            "needs tcp:// targets; write ws://127.0.0.1:1/ as tcp://HOST:PORT",
        ),
        (
            "targets = ['tcp://127.0.0.1']".to_owned(),
            "the port is missing",
        ),
        ("channels = ['a']".to_owned(), "have no channels"),
        (
            "headers = { A = 'b' }".to_owned(),
            "terminals.headers is for clients that send requests",
        ),
        (
            "[heartbeat]\nevery = '1s'".to_owned(),
            "heartbeat.every: terminals.protocol tcp has no pings",
        ),
        (
            flow("\"say:${stamp}\\n\""),
            "flows[0].send: this does not fit [framing]: the delimiter is in the message",
        ),
        (
            flow("'say:${stamp:bytes}'"),
            "flows[0].send: the delimiter may be among the bytes of a number",
        ),
        (
            format!(
                "[framing]\nby = 'size'\nsize = 10\n{}",
                flow("'say:${stamp}'")
            ),
            "flows[0].send: this does not fit [framing]: a message of 20 bytes, and 10 fit its frame",
        ),
        (
            "[framing]\nby = 'length'\nlength-bytes = 3".to_owned(),
            "framing.length-bytes: a length has 1, 2, 4 or 8 bytes, and not 3",
        ),
        (
            "[framing]\nby = 'length'\nsize = 3".to_owned(),
            "framing.size: `size` needs `by = \"size\"`",
        ),
        (
            "[framing]\nby = 'delimiter'\ndelimiter = ''".to_owned(),
            "framing.delimiter: a delimiter has 1 to 256 bytes",
        ),
        (
            "[framing]\nby = 'delimiter'\nmessage-max = '1GiB'".to_owned(),
            "framing.message-max: messages have 1 to 16777216 bytes at most",
        ),
    ] {
        let said = refused(&more);
        assert!(said.contains(wanted), "{more}: {said}");
    }
}
