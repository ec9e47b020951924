//! Terminals of HTTP and plain TCP in cases made by hand, on a network without faults.

use super::run::Run;
use crate::clock::Clock as _;
use crate::config::{Config, Endpoint, Publish, PublishBody};
use crate::engine::shared::Shared;
use crate::failure::Failure;
use crate::measure::push::PushKey;
use crate::protocol::Protocol;
use crate::scenario::Scenario;
use crate::stamp::Stamp;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, PeerId, SimNet};
use std::path::Path;
use std::time::Duration;

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

const TALK: &str = r#"
[terminals]
count = 1
protocol = "tcp"
targets = ["tcp://127.0.0.1:8000"]
[hold]
duration = "1000s"
[opening]
send = ["login"]
answers = ["^welcome"]
[[replies]]
to = "^prove (.*)"
send = "proof ${match}"
"#;

/// A run on one thread.
fn run(mut config: Config) -> Run {
    config.driver = Some(Driver::Epoll);
    config.threads = Some(1);
    let plan = config.prepare().unwrap().plan;
    let shared = Shared::of_plan(&plan);
    Run::new(plan, shared, SimNet::new(1, Faults::NONE))
}

/// A terminal of events for each of these ports.
fn streams(ports: &[u16]) -> Run {
    let target = |port| Target::parse(&format!("http://127.0.0.1:{port}/events")).unwrap();
    let targets = ports.iter().map(target).collect();
    let mut config = Config::new(targets, ports.len() as u64);
    config.protocol = Protocol::Sse;
    config.duration = Some(Duration::from_mins(10));
    let endpoint = Endpoint::parse("http://127.0.0.1:8000/publish").unwrap();
    let mut publish = Publish::new(endpoint, Duration::from_secs(1));
    publish.body = PublishBody::Plain;
    config.publish = Some(publish);
    run(config)
}

/// A terminal that polls.
fn poll() -> Run {
    let target = Target::parse("http://127.0.0.1:8001/poll").unwrap();
    let mut config = Config::new(vec![target], 1);
    config.protocol = Protocol::LongPoll;
    config.duration = Some(Duration::from_mins(10));
    run(config)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

impl Run {
    /// Takes turns for so many milliseconds.
    fn pass_turns(&mut self, millis: u64) {
        for _ in 0..millis {
            self.turn();
            self.pass(1);
        }
    }

    /// Connections that were made since this was last asked, by their port.
    fn dialed_by_port(&self) -> Vec<(u16, PeerId)> {
        let dialed = self.net.dialed().into_iter();
        let mut peers: Vec<_> = dialed.map(|it| (it.target.port(), it.peer)).collect();
        peers.sort_by_key(|(port, _)| *port);
        peers
    }

    fn read_text(&self, peer: PeerId) -> String {
        String::from_utf8(self.net.read(peer)).unwrap()
    }
}

#[test]
fn a_retry_holds_for_its_own_target_and_who_waits_for_it_is_told_apart() {
    let mut run = streams(&[8001, 8002]);
    run.pass_turns(10);
    let [(_, slow), (_, other)] = run.dialed_by_port()[..] else {
        panic!("one connection to each")
    };
    let said = format!("{STREAM_HEAD}{}", chunk("retry: 60000\n\n"));
    run.net.write(slow, said.as_bytes());
    run.net.write(other, STREAM_HEAD.as_bytes());
    run.pass_turns(10);
    assert_eq!((run.totals().open, run.totals().http.reopening), (2, 0));
    for peer in [slow, other] {
        run.net.write(peer, b"0\r\n\r\n");
        run.net.close(peer);
    }
    run.pass_turns(10);
    let totals = run.totals();
    assert_eq!((totals.open, totals.http.reopening), (2, 2));
    assert_eq!(totals.http.reopened, 0, "nobody has a connection yet");
    // A second and a quarter at most.
    run.pass_turns(1500);
    let [(8002, again)] = run.dialed_by_port()[..] else {
        panic!("one connection, to the target that gave no time")
    };
    run.net.write(again, STREAM_HEAD.as_bytes());
    run.pass_turns(10);
    let totals = run.totals();
    assert_eq!((totals.http.reopened, totals.http.reopening), (1, 1));
    assert_eq!((totals.open, totals.lost), (2, 0));
}

#[test]
fn events_that_came_whole_count_also_before_a_broken_chunk() {
    for is_apart in [true, false] {
        let mut run = streams(&[8001]);
        run.pass_turns(10);
        let (_, peer) = run.dialed_by_port()[0];
        let (stream, sequence) = (0, 1);
        let key = PushKey::Own { stream, sequence };
        let roll = run.shared.call_roll(1, |_| true);
        let now = run.clock.now();
        run.shared.ledger.publish(key, 1, roll, now, now);
        let stamp = Stamp {
            run: run.plan.run,
            stream,
            sequence,
        };
        run.net.write(peer, STREAM_HEAD.as_bytes());
        if is_apart {
            run.pass_turns(10);
        }
        let event = chunk(&format!("data: {}\n\n", stamp.payload(40)));
        run.net.write(peer, format!("{event}zz\r\n").as_bytes());
        run.pass_turns(10);
        let totals = run.totals();
        assert_eq!((totals.opened, totals.messages, totals.lost), (1, 1, 1));
    }
}

#[test]
fn an_answer_that_no_poll_asked_for_is_none() {
    let mut run = poll();
    run.pass_turns(10);
    let (_, peer) = run.dialed_by_port()[0];
    assert!(run.read_text(peer).starts_with("GET /poll "));
    // The second comes in a read of its own, before the next poll leaves.
    for _ in 0..2 {
        run.net.write(peer, b"HTTP/1.1 204 No Content\r\n\r\n");
        run.turn();
    }
    run.pass_turns(10);
    let totals = run.totals();
    assert_eq!((totals.http.requests, totals.http.answers), (1, 1));
    assert_eq!((totals.opened, totals.lost), (1, 1));
    let account = run.shared.account(0);
    assert_eq!(account.failures[&Failure::AnswerInvalid], 1);
}

#[test]
fn polls_ask_again_one_at_a_time() {
    let mut run = poll();
    run.pass_turns(10);
    let (_, peer) = run.dialed_by_port()[0];
    for _ in 0..20 {
        let asked = run.read_text(peer);
        assert_eq!(asked.matches("GET /poll ").count(), 1, "{asked}");
        run.net.write(peer, b"HTTP/1.1 204 No Content\r\n\r\n");
        run.pass_turns(5);
    }
    let totals = run.totals();
    assert_eq!((totals.http.requests, totals.http.answers), (21, 20));
    assert_eq!((totals.open, totals.lost), (1, 0));
}

#[test]
fn an_upgrade_may_be_answered_with_a_large_head() {
    let refused = |policy_bytes: usize| {
        let target = Target::parse("ws://127.0.0.1:8001/raw").unwrap();
        let mut run = run(Config::new(vec![target], 1));
        run.pass_turns(10);
        let (_, peer) = run.dialed_by_port()[0];
        let policy = "p".repeat(policy_bytes);
        let answer =
            format!("HTTP/1.1 503 Full\r\nx-policy: {policy}\r\ncontent-length: 0\r\n\r\n");
        run.net.write(peer, answer.as_bytes());
        run.pass_turns(50);
        let account = run.shared.account(0);
        let (failure, _) = account.failures.first_key_value().unwrap();
        (*failure, account.answers.get(failure).cloned())
    };
    assert_eq!(refused(20_000).0, Failure::HandshakeStatus(503));
    let said = b"a head of more than 32768 bytes".to_vec();
    let too_large = (Failure::HandshakeInvalid, Some(said));
    assert_eq!(refused(40_000), too_large);
}

#[test]
fn whoever_is_asked_while_it_opens_replies() {
    let scenario = Scenario::parse(Path::new("talk.toml"), TALK, &[]).unwrap();
    let mut run = run(scenario.config);
    run.pass_turns(10);
    let (_, peer) = run.dialed_by_port()[0];
    assert_eq!(run.read_text(peer), "login\n");
    run.net.write(peer, b"prove 17\n");
    run.pass_turns(10);
    assert_eq!(run.read_text(peer), "proof 17\n");
    assert_eq!(run.totals().opened, 0);
    run.net.write(peer, b"welcome\n");
    run.pass_turns(10);
    assert_eq!(run.totals().opened, 1);
}

#[test]
fn what_a_server_asks_for_at_once_is_bounded() {
    let reply = "r".repeat(2000);
    let text = format!("{TALK}[[replies]]\nto = \"^p$\"\nsend = \"{reply}\"\n");
    let scenario = Scenario::parse(Path::new("talk.toml"), &text, &[]).unwrap();
    let mut run = run(scenario.config);
    run.pass_turns(10);
    let (_, peer) = run.dialed_by_port()[0];
    run.net.write(peer, b"welcome\n");
    run.pass_turns(10);
    run.net.read(peer);
    // Four megabytes of replies.
    run.net.write(peer, "p\n".repeat(2000).as_bytes());
    run.pass_turns(100);
    let bytes = run.net.read(peer).len();
    assert!((2000..512 << 10).contains(&bytes), "{bytes}");
}
