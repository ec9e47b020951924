//! Each mistake has its place and says what to do.

use super::{STARTER, Scenario, ScenarioError, schema};
use crate::config::Arrival;
use crate::config_error::ConfigError;
use crate::protocol::Protocol;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "my.toml";

fn parse(text: &str, sets: &[&str]) -> Result<Scenario, ScenarioError> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    Scenario::parse(Path::new(FILE), text, &sets)
}

fn said(text: &str, sets: &[&str]) -> String {
    match parse(text, sets) {
        Err(error) => error.to_string(),
        Ok(scenario) => {
            let error = scenario.config.prepare().expect_err("there is a mistake");
            scenario.explain(error).to_string()
        }
    }
}

/// A scenario with more lines in `[terminals]` and behind it.
fn with(terminals: &str, rest: &str) -> String {
    format!("[terminals]\ntargets = [\"ws://127.0.0.1:1/?channel=a\"]\n{terminals}\n{rest}\n")
}

#[test]
fn a_value_that_cannot_be_read_is_marked_in_its_line() {
    assert_eq!(
        said(&with("count = \"12q\"", ""), &[]),
        "my.toml:3:9: terminals.count: `12q`: unknown unit at column 3; write a count such as 250, 50k or 1m\n   \
         |\n 3 | count = \"12q\"\n   |         ^^^^^"
    );
    assert_eq!(
        said(&with("", "[heartbeat]\nevery = true"), &[]),
        "my.toml:5:9: heartbeat.every: invalid type: boolean `true`, expected a duration such as 250ms, 10s, 5m or 1h30m\n   \
         |\n 5 | every = true\n   |         ^^^^"
    );
    assert_eq!(
        said(
            "[terminals]\ntargets = [\"ws://127.0.0.1:1/\", \"ftp://x\"]\n",
            &[]
        ),
        "my.toml:2:33: terminals.targets[1]: `ftp://x`: this does not begin with ws://; write it as ws://HOST:PORT/PATH\n   \
         |\n 2 | targets = [\"ws://127.0.0.1:1/\", \"ftp://x\"]\n   |                                 ^^^^^^^^^"
    );
}

#[test]
fn a_threshold_may_be_a_table_that_says_when_it_ends_the_run() {
    let text = "thresholds = [\"errors==0\", { threshold = \"errors<5\", abort-on-fail = true }, \
                { threshold = \"lost<5\", abortOnFail = true, delayAbortEval = \"10s\" }, { threshold = \"gaps==0\" }]\n";
    let config = parse(&format!("{text}{}", with("", "")), &[])
        .expect("it is right")
        .config;
    let delays = config.thresholds.iter().map(|it| it.aborts_after(None));
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(
        delays.collect::<Vec<_>>(),
        [None, seconds(0), seconds(10), None]
    );
    // Where all end the run, the delay of one goes before the delay of all.
    let delays = config
        .thresholds
        .iter()
        .map(|it| it.aborts_after(seconds(3)));
    assert_eq!(
        delays.collect::<Vec<_>>(),
        [seconds(3), seconds(0), seconds(10), seconds(3)]
    );
    for (table, wanted) in [
        (
            "{ threshold = \"errors<5\", delay-abort-eval = \"10s\" }",
            "abort-on-fail = true",
        ),
        ("{ threshold = \"errors\" }", "a comparison is missing"),
        ("{ abort-on-fail = true }", "threshold"),
        ("{ threshold = \"errors<5\", abort = true }", "abort"),
        ("5", "a condition such as"),
    ] {
        let said = said(&format!("thresholds = [{table}]\n{}", with("", "")), &[]);
        assert!(
            said.starts_with("my.toml:1:") && said.contains(wanted),
            "{said}"
        );
    }
}

#[test]
fn a_key_that_does_not_exist_has_a_suggestion() {
    assert_eq!(
        said(&with("conut = 1", ""), &[]),
        "my.toml:3:1: terminals.conut: there is no key `conut`; did you mean `count`?\n   \
         |\n 3 | conut = 1\n   | ^^^^^"
    );
    let far = said(&with("", "[weather]\nis = 1"), &[]);
    assert!(
        far.starts_with("my.toml:4:2: weather: there is no key `weather`; choose among "),
        "{far}"
    );
    assert!(
        far.ends_with("\n   |\n 4 | [weather]\n   |  ^^^^^^^"),
        "{far}"
    );
}

#[test]
fn other_words_for_a_key_lead_to_it() {
    for (text, wanted) in [
        (
            with("clients = 5", ""),
            "no key `clients`; did you mean `count`?",
        ),
        (with("vus = 5", ""), "no key `vus`; did you mean `count`?"),
        (
            with("", "[connections]\ncount = 1"),
            "did you mean `terminals`?",
        ),
        (with("", "[publish]\nurl = \"x\""), "did you mean `urls`?"),
        (with("", "[env]\na = \"x\""), "did you mean `variables`?"),
    ] {
        let said = said(&text, &[]);
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_list_of_tables_wants_two_brackets() {
    let flow = "[[flows]]\nname = \"a\"\nrate = 1\nsend = \"${stamp}\"\n";
    let wanted =
        "`flows` is a list of tables; write [[flows]], with two brackets, above each of them";
    let alone = said(&with("", "[flows]\nname = \"a\""), &[]);
    assert!(alone.starts_with("my.toml:4:"), "{alone}");
    assert!(alone.contains(wanted), "{alone}");
    let behind = said(&with("", &format!("{flow}[flows]\nname = \"b\"")), &[]);
    assert!(behind.starts_with("my.toml:8:"), "{behind}");
    assert!(behind.contains(wanted), "{behind}");
}

#[test]
fn a_threshold_on_a_flow_that_there_is_not_is_marked_with_the_nearest_name() {
    let text = |threshold: &str| {
        let flow = "[[flows]]\nname = \"chat\"\nrate = 1\nsend = \"${stamp}\"";
        format!(
            "thresholds = [\"errors==0\", \"{threshold}\"]\n{}",
            with("", flow)
        )
    };
    let slip = said(&text("flow:chatt:p99<5s"), &[]);
    assert!(
        slip.starts_with(
            "my.toml:1:28: thresholds[1]: no flow is named `chatt`; did you mean `chat`?\n"
        ),
        "{slip}"
    );
    let other = said(&text("flow:weather:p99<5s"), &[]);
    assert!(
        other.contains("no flow is named `weather`; choose among chat"),
        "{other}"
    );
    // One of the command line has no place in the file.
    let mut scenario = parse(&text("lost==0"), &[]).expect("it is right");
    let threshold = crate::Threshold::parse("flow:chatt:p99<5s").expect("it is one");
    scenario.config.thresholds.push(threshold);
    let error = scenario.config.prepare().expect_err("there is a mistake");
    assert_eq!(
        scenario.explain(error).to_string(),
        "--threshold 'flow:chatt:p99<5s': no flow is named `chatt`; did you mean `chat`?"
    );
}

#[test]
fn a_threshold_follows_the_variable_of_the_count() {
    let text =
        "thresholds = [\"setup:connected>=${many}\"]\n[variables]\nmany = \"1k\"\n".to_owned();
    let text = text + &with("count = \"${many}\"", "");
    let scenario = parse(&text, &[]).expect("it is right");
    let fewer = scenario.with_count(200).expect("it is right too");
    assert_eq!(fewer.config.connections, 200);
    assert_eq!(
        fewer.config.thresholds[0].expression,
        "setup:connected>=200"
    );
    assert!(fewer.config.prepare().is_ok());
    // The count alone leaves the threshold behind, which no run can hold.
    let alone = said(&text, &["terminals.count=200"]);
    assert!(
        alone.contains("thresholds[0]: no run with 200 clients can hold it; write the number that terminals.count has"),
        "{alone}"
    );
    let plain = parse(&with("count = 5", ""), &[]).expect("it is right");
    assert_eq!(plain.with_count(7).expect("too").config.connections, 7);
}

#[test]
fn a_mistake_of_the_run_names_its_key_once() {
    let accounts = "there are no accounts that ${account:sid} could be of";
    let target = "[terminals]\ntargets = [\"ws://127.0.0.1:1/?channel=${account:sid}\"]\n";
    let header = with("headers = { Cookie = \"sid=${account:sid}\" }", "");
    let channel = "[terminals]\ntargets = [\"http://127.0.0.1:1/x\"]\nprotocol = \"http\"\nchannels = [\"b\"]\n";
    for (text, key, words) in [
        (&*header, "terminals.headers", accounts),
        (target, "terminals.targets", accounts),
        (channel, "terminals.channels", "clients of"),
    ] {
        let said = said(text, &[]);
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains(&format!(": {key}: {words}")), "{said}");
        assert_eq!(first.matches(key).count(), 1, "{said}");
    }
    let set = said(&with("", ""), &["terminals.headers.X=${account:sid}"]);
    assert_eq!(set.matches("terminals.headers").count(), 1, "{set}");
}

#[test]
fn a_header_of_several_lines_is_refused_at_its_line() {
    let two = said(
        &with("headers = { X-A = \"b\", X-B = \"a\\r\\nX-C: d\" }", ""),
        &[],
    );
    assert!(
        two.starts_with("my.toml:3:30: terminals.headers.X-B: ")
            && two.contains("take out line breaks"),
        "{two}"
    );
    for bad in ["\"X A\" = \"b\"", "\"X\\n\" = \"b\"", "X = \"a\\u0000b\""] {
        let said = said(&with(&format!("headers = {{ {bad} }}"), ""), &[]);
        assert!(
            said.starts_with("my.toml:3:") && said.contains("cannot be sent"),
            "{said}"
        );
    }
    let call = "[[flows]]\nname = \"a\"\nrate = 1\nurl = \"http://127.0.0.1:1/\"\nheaders = { X = \"a\\nb\" }";
    let said = said(&with("", call), &[]);
    assert!(
        said.starts_with("my.toml:8:") && said.contains("the value of x cannot be sent"),
        "{said}"
    );
}

#[test]
fn a_key_that_is_missing_is_named_at_its_section() {
    let missing = said(&with("", "[publish]\npushes = 1"), &[]);
    assert!(
        missing.starts_with("my.toml:4:")
            && missing.contains("the key `urls` is missing; write it too"),
        "{missing}"
    );
    assert_eq!(
        said("\n[terminals]\ncount = 5\n", &[]),
        "my.toml:2:2: terminals.targets: no target is given; write targets = [\"ws://127.0.0.1:8000/raw?channel=news\"] in [terminals]\n   \
         |\n 2 | [terminals]\n   |  ^^^^^^^^^"
    );
    let none = said(&with("", "[requests]\nurls = []\nrate = 5"), &[]);
    assert!(
        none.starts_with("my.toml:5:8: requests.urls: no URL is given"),
        "{none}"
    );
}

#[test]
fn what_is_no_toml_has_its_line() {
    let broken = said("[terminals]\ncount = = 5\n", &[]);
    assert!(
        broken.starts_with("my.toml:2:") && broken.contains("this is no TOML: "),
        "{broken}"
    );
    assert!(broken.contains("\n 2 | count = = 5\n   | "), "{broken}");
    let twice = said("[terminals]\ncount = 5\ncount = 6\n", &[]);
    assert!(
        twice.starts_with("my.toml:3:1: this is no TOML: duplicate key"),
        "{twice}"
    );
}

#[test]
fn what_does_not_go_together_is_told_in_the_words_of_the_file() {
    assert_eq!(
        said(
            &with("protocol = \"centrifuge-json\"", "[echo]\nrate = \"1k/s\""),
            &[]
        ),
        "my.toml:5:8: echo.rate needs terminals.protocol raw or tcp, because the server is to send each message back as it is\n   \
         |\n 5 | rate = \"1k/s\"\n   |        ^^^^^^"
    );
    let unmeasured = said(
        &format!("thresholds = [\"echo:p99<1s\"]\n{}", with("", "")),
        &[],
    );
    assert!(
        unmeasured
            .starts_with("my.toml:1:15: thresholds[0]: its figure is measured with echo.rate only"),
        "{unmeasured}"
    );
    let tokens = said(&with("token = \"a\"\ntokens-file = \"b\"", ""), &[]);
    assert!(
        tokens.starts_with(
            "my.toml:4:15: terminals.tokens-file: `token` and `tokens-file` exclude each other"
        ),
        "{tokens}"
    );
    let file = said(&with("tokens-file = \"no/such\"", ""), &[]);
    assert!(
        file.contains("my.toml:3:15: terminals.tokens-file: no/such cannot be read"),
        "{file}"
    );
}

#[test]
fn a_file_without_an_end_is_read_up_to_the_limit() {
    let read = |path: &str, bytes_max| super::fill::read("accounts.file", path.as_ref(), bytes_max);
    let (_, problem) = read("/dev/zero", 100_000).unwrap_err();
    let said = problem.to_string();
    assert!(
        said.contains("100,000") || said.contains("100000"),
        "{said}"
    );
    assert_eq!(read("/dev/null", 0).ok(), Some(String::new()));
}

#[test]
fn what_set_gives_takes_the_place_of_the_file() {
    let scenario = parse(STARTER, &["terminals.count=7", "churn.rate=1%/m"]).expect("a scenario");
    assert_eq!(scenario.config.connections, 7);
    assert!(scenario.config.churn_per_s.is_some());
    assert_eq!(
        said(STARTER, &["terminals.count=many"]),
        "--set terminals.count: `many`: a number is missing at column 1; write a count such as 250, 50k or 1m"
    );
    assert_eq!(
        said(STARTER, &["terminals.conut=5"]),
        "--set terminals.conut: there is no key `conut`; did you mean `count`?"
    );
    for given in ["terminals.count", "description.x=5", ".=5"] {
        let refused = said(STARTER, &[given]);
        assert!(
            refused.starts_with(&format!("--set {given}: write KEY=VALUE")),
            "{refused}"
        );
    }
}

#[test]
fn a_slip_in_the_name_of_a_flow_or_a_variable_is_told() {
    let flow = with_flow("'${stamp}'", "");
    let refused = said(&flow, &["flows.chta.rate=5"]);
    assert_eq!(
        refused,
        "--set flows.chta.rate=5: nothing in flows is named `chta`; did you mean `chat`?"
    );
    let target =
        "[variables]\nserver = \"127.0.0.1:1\"\n[terminals]\ntargets = [\"ws://${sever}/raw\"]\n";
    let refused = said(target, &[]);
    assert!(
        refused.contains("[variables] has no `sever`; did you mean `server`?"),
        "{refused}"
    );
    let none = said("[terminals]\ncount = \"${many}\"\ntargets = []\n", &[]);
    assert!(
        none.contains("[variables] has no `many`; write its value there"),
        "{none}"
    );
    let single = said("[terminals]\ntargets = \"ws://127.0.0.1:1/\"\n", &[]);
    assert!(
        single.contains("this is a list; write [\"ws://127.0.0.1:1/\"]"),
        "{single}"
    );
}

#[test]
fn variables_stand_for_texts() {
    let scenario = parse(STARTER, &["variables.server=127.0.0.1:77"]).expect("a scenario");
    assert_eq!(
        scenario.config.targets[0].url,
        "ws://127.0.0.1:77/raw?channel=news"
    );
    let publish = scenario.config.publish.expect("pushes");
    assert_eq!(publish.endpoints[0].url, "http://127.0.0.1:77/api/publish");
}

#[test]
fn a_variable_that_stands_nowhere_is_refused() {
    assert_eq!(
        said(STARTER, &["variables.sever=127.0.0.1:77"]),
        "--set variables.sever: the scenario has no variable `sever`; did you mean `variables.server`?"
    );
    assert_eq!(
        said(STARTER, &["server=127.0.0.1:77"]),
        "--set server: there is no key `server`; did you mean `variables.server`?"
    );
    let without = "[terminals]\ncount = 1\ntargets = [\"ws://127.0.0.1:1/\"]";
    assert_eq!(
        said(without, &["variables.server=here"]),
        "--set variables.server: the scenario has no variable `server`; write ${server} where its value is to stand"
    );
    let with = "[terminals]\ncount = 1\ntargets = [\"ws://${server}/\"]";
    let scenario = parse(with, &["variables.server=127.0.0.1:77"]).expect("a scenario");
    assert_eq!(scenario.config.targets[0].url, "ws://127.0.0.1:77/");
}

#[test]
fn a_file_fills_what_the_options_fill() {
    let text = r#"
        [terminals]
        count = 20_000
        protocol = "long-poll"
        targets = ["http://127.0.0.1:1/{channel}"]
        channels = ["room"]
        channel-count = "1k"
        headers = { X-A = "b" }
        poll-position = ["none"]
        expect-held = "30s..90s"
        close = "orderly"
        [arrival]
        rate = 500
        retries = 0
        connect-timeout = "3s"
        [hold]
        duration = "5m"
        settle = "2s"
        [churn]
        rate = "100%/s"
        [generator]
        threads = 3
    "#;
    let config = parse(text, &[]).expect("a scenario").config;
    assert_eq!(
        (config.connections, config.protocol),
        (20_000, Protocol::LongPoll)
    );
    assert_eq!(
        (config.channel_count, config.retries, config.threads),
        (Some(1000), 0, Some(3))
    );
    assert_eq!(config.headers, [("X-A".to_owned(), "b".to_owned())]);
    let held = (Duration::from_secs(30), Duration::from_secs(90));
    assert_eq!(config.expect_held, Some(held));
    assert_eq!(
        (&config.arrival, config.churn_per_s),
        (&Arrival::Rate(500.0), Some(1.0))
    );
    assert_eq!(
        (config.duration, config.settle),
        (Some(Duration::from_mins(5)), Duration::from_secs(2))
    );
    config.check().expect("it can be run");
}

#[test]
fn a_crowd_arrives_in_one_way() {
    let stages = "[arrival]\nstages = [{ duration = \"30s\", target = \"10%\" }, { duration = \"1m\", target = 500 }]";
    let scenario = parse(&with("", stages), &[]).expect("a scenario");
    assert_eq!(scenario.config.connections, 500, "the last stage says it");
    scenario.config.check().expect("it can be run");
    let other = said(&with("count = 400", stages), &[]);
    assert!(
        other.starts_with("my.toml:5:10: arrival.stages: the last one goes to 500, and terminals.count is 400; let it end there, or write shares such as 100%\n"),
        "{other}"
    );
    let both = said(&with("", "[arrival]\nramp = \"5s\"\nat-once = true"), &[]);
    assert!(
        both.starts_with(
            "my.toml:6:11: arrival.at-once: `arrival.ramp` and `arrival.at-once` exclude each other"
        ),
        "{both}"
    );
    let wrong = said(
        &with(
            "",
            "[arrival]\nstages = [{ duration = \"5s\", target = \"x\" }]",
        ),
        &[],
    );
    assert!(
        wrong.starts_with("my.toml:5:39: arrival.stages[0].target: "),
        "{wrong}"
    );
}

#[test]
fn the_first_scenario_and_the_ready_ones_fit_the_schema_and_can_be_run() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut texts = vec![(FILE.to_owned(), STARTER.to_owned())];
    for entry in std::fs::read_dir(folder).expect("the ready scenarios") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a text");
        texts.push((path.display().to_string(), text));
    }
    assert!(texts.len() > 4);
    for (path, text) in texts {
        let value: toml::Value = toml::from_str(&text).expect("TOML");
        let value = serde_json::to_value(value).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
        let scenario = Scenario::parse(Path::new(&path), &text, &[]).expect("a scenario");
        scenario
            .config
            .check()
            .unwrap_or_else(|error: ConfigError| panic!("{path}: {error}"));
    }
}

#[test]
fn the_schema_refuses_what_the_reading_refuses() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for text in [
        with("conut = 1", ""),
        with("count = true", ""),
        with("protocol = \"rwa\"", ""),
        with("", "[publish]\npushes = 1"),
        with("", "[weather]"),
    ] {
        assert!(parse(&text, &[]).is_err(), "{text}");
        let value: toml::Value = toml::from_str(&text).expect("TOML");
        assert!(
            !validator.is_valid(&serde_json::to_value(value).expect("JSON")),
            "{text}"
        );
    }
}

/// A scenario with one flow that sends this, and with more lines behind it.
fn with_flow(send: &str, more: &str) -> String {
    let flow = format!("[[flows]]\nname = \"chat\"\nrate = 5\nsend = {send}\n{more}");
    with("count = 10", &flow)
}

fn check_each(cases: &[(String, &str)]) {
    for (text, wanted) in cases {
        let said = said(text, &[]);
        assert!(said.starts_with(wanted), "{said}");
    }
}

#[test]
fn a_mistake_in_a_flow_is_marked_at_its_key() {
    check_each(&[
        (
            with_flow("'hello'", ""),
            "my.toml:7:8: flows[0].send: a message of a flow needs ${stamp}",
        ),
        (
            with_flow("'${stamp} ${user}'", ""),
            "my.toml:7:8: flows[0].send: there is no variable ${user}; choose among",
        ),
        (
            with_flow("'${stamp:bytes}'", ""),
            "my.toml:7:8: flows[0].send: this may be no text",
        ),
        (
            with_flow("'${stamp}'", "stamp-regex = '('"),
            "my.toml:8:15: flows[0].stamp-regex: this is no regular expression",
        ),
        (
            with_flow("'${stamp}'", "stamp-json = 'id'"),
            "my.toml:8:14: flows[0].stamp-json: 'id' is no JSON pointer",
        ),
        (
            with_flow("'${stamp}'", "stamp-offset = 1\nstamp-json = '/id'"),
            "my.toml:4:1: flows: a flow has one of",
        ),
        (
            with_flow("'${stamp} ${account:name}'", ""),
            "my.toml:7:8: flows[0].send: there are no accounts that ${account:name} could be of",
        ),
        (
            with_flow("'${stamp}'", "url = 'http://${time}/'"),
            "my.toml:8:7: flows[0].url: variables stand behind the host only",
        ),
        (
            with_flow("'${stamp}'", "url = 'http://127.0.0.1:1/${stamp:bytes}'"),
            "my.toml:7:8: flows[0].send: a request is a text",
        ),
        (
            with_flow("'${stamp}'", "method = 'PUT'"),
            "my.toml:4:1: flows: `method` needs `url`; write it too",
        ),
        (
            with_flow("'${stamp}'", "expect = 'answer'"),
            "my.toml:8:10: flows[0].expect: only requests and commands have an answer of their own",
        ),
    ]);
}

#[test]
fn a_mistake_around_flows_is_marked_at_its_key() {
    check_each(&[
        (
            with_flow("'${stamp}'", "[groups]\ncount = 11"),
            "my.toml:9:9: groups.count: 10 clients cannot be dealt out to 11 groups; give groups.count = N with N from 1 to 10, or more clients",
        ),
        (
            with_flow("'${stamp}'", "[groups]\nsizes = [4, 4]"),
            "my.toml:9:9: groups.sizes: 10 clients cannot be dealt out to 2 groups whose sizes add up to 8; let groups.sizes add up",
        ),
        (
            with_flow("'${stamp}'", "[groups]\ncolumn = 'room'"),
            "my.toml:9:10: groups.column: there are no accounts with a column `room`",
        ),
        (
            with_flow(
                "'${stamp}'",
                "[opening]\nsend = ['a', 'b']\nanswers = ['a', '(']",
            ),
            "my.toml:10:17: opening.answers[1]: this is no regular expression",
        ),
        (
            with_flow(
                "'${stamp}'",
                "[opening]\nsend = ['a', 'b']\nanswers = ['a']",
            ),
            "my.toml:10:11: opening.answers: 1 answers are given to 2 messages",
        ),
        (
            with_flow("'${stamp}'", "[opening]\nsend = ['${stamp}']"),
            "my.toml:9:9: opening.send[0]: ${stamp} has no value here",
        ),
        (
            with_flow("'${stamp}'", "[heartbeat]\nevery = '1s'\nanswer = 'a'"),
            "my.toml:10:10: heartbeat.answer: `answer` needs `send`",
        ),
        (
            with_flow("'${stamp}'", "[groups]\ncolumn = 'room'\ncount = 2"),
            "my.toml:9:10: groups.column: `count` and `column` exclude each other",
        ),
        (
            format!(
                "thresholds = [\"flow:talk:p99<1s\"]\n{}",
                with_flow("'${stamp}'", "")
            ),
            "my.toml:1:15: thresholds[0]: no flow is named `talk`; choose among chat",
        ),
        (
            with_flow("'${stamp}'", "[echo]\nrate = 1"),
            "my.toml:8:2: echo: flows do not go with echo",
        ),
        (
            with_flow(
                "'${stamp}'",
                "[[flows]]\nname = \"chat\"\nrate = 1\nsend = '${stamp}'",
            ),
            "my.toml:9:8: flows[1].name: two flows are named 'chat'; give each a name of its own",
        ),
        (
            with_flow("'${stamp}'", "").replace("\"chat\"", "\"a:b\""),
            "my.toml:5:8: flows[0].name: 'a:b' cannot name a flow; write a name without a colon",
        ),
    ]);
}

#[test]
fn a_crowd_too_small_for_its_groups_is_told_which_variable_to_change() {
    let flow = with_flow("'${stamp}'", "[groups]\ncount = \"${rooms}\"");
    let flow = flow.replace("count = 10\n", "count = \"${many}\"\n");
    let text = format!("[variables]\nmany = \"20k\"\nrooms = \"880\"\n{flow}");
    let scenario = parse(&text, &[]).expect("it is right");
    scenario.config.check().expect("it can be run");
    let smaller = scenario.with_count(500).expect("it can be read");
    let error = smaller.config.check().expect_err("880 is more than 500");
    let said = smaller.explain(error).to_string();
    assert!(
        said.contains(
            "groups.count: 500 clients cannot be dealt out to 880 groups; give --var rooms=N with N from 1 to 500, or more clients\n"
        ),
        "{said}"
    );
    assert!(said.contains("| count = \"${rooms}\"\n"), "{said}");
}

#[test]
fn keys_of_groups_that_would_do_nothing_are_refused() {
    let with_groups = |groups: &str| with_flow("'${stamp}'", &format!("[groups]\n{groups}"));
    check_each(&[
        (
            with_groups("sizes = [4, 6]\nassign = 'zipf'"),
            "my.toml:10:10: groups.assign: `sizes` and `assign` exclude each other",
        ),
        (
            with_groups("column = 'room'\nassign = 'even'"),
            "my.toml:10:10: groups.assign: `column` and `assign` exclude each other",
        ),
        (
            with_groups("sizes = [4, 6]\nexponent = 2.0"),
            "my.toml:10:12: groups.exponent: `sizes` and `exponent` exclude each other",
        ),
        (
            with_groups("count = 2\nassign = 'even'\nexponent = 2.0"),
            "my.toml:11:12: groups.exponent: `exponent` needs `assign = \"zipf\"`",
        ),
        (
            with_groups("count = 2\nexponent = 2.0"),
            "my.toml:10:12: groups.exponent: `exponent` needs `assign = \"zipf\"`",
        ),
        (
            with_groups("count = 2\nassign = 'zipf'\nexponent = 11.0"),
            "my.toml:11:12: groups.exponent: this is out of range",
        ),
    ]);
    let zipf = with_groups("count = 2\nassign = 'zipf'\nexponent = 2.0");
    Scenario::parse(Path::new("my.toml"), &zipf, &[]).expect("all of it has a meaning");
}

#[test]
fn what_belongs_to_something_said_is_refused_where_nothing_is() {
    check_each(&[
        (
            with("count = 10", "[groups]\ncount = 2"),
            "my.toml:4:2: groups: nobody says anything that `groups` could be for",
        ),
        (
            with(
                "count = 10",
                "[heartbeat]\nevery = '1s'\n[groups]\ncount = 2",
            ),
            "my.toml:6:2: groups: nobody says anything",
        ),
        (
            with("lines = true", ""),
            "my.toml:3:9: terminals.lines: nobody says anything",
        ),
    ]);
    let talk = with(
        "count = 10",
        "[opening]\nsend = ['${group}']\n[groups]\ncount = 2",
    );
    Scenario::parse(Path::new("my.toml"), &talk, &[]).expect("it says something");
}

/// A scenario of clients with sessions, with one flow of these lines, and with more lines behind it.
fn with_command(flow: &str, more: &str) -> String {
    let flow = format!("[[flows]]\nname = \"chat\"\nrate = 5\n{flow}\n{more}");
    with("protocol = \"centrifuge-json\"", &flow)
}

#[test]
fn a_mistake_in_a_command_is_marked_at_its_key() {
    let groups = "[groups]\nchannel = 'room-${group}'";
    check_each(&[
        (
            with_command("send = '\"${stamp}\"'", ""),
            "my.toml:4:1: flows[0].action: there is no channel to do this in",
        ),
        (
            with_command("send = '${stamp}'", groups),
            "my.toml:7:8: flows[0].send: the data of a command in JSON is a JSON value",
        ),
        (
            with_command("send = '\"${stamp:bytes}\"'", groups),
            "my.toml:7:8: flows[0].send: the data of a command in JSON is a text",
        ),
        (
            with_command("send = '1'\nexpect = 'group'", groups),
            "my.toml:7:8: flows[0].send: a message of a flow needs ${stamp}",
        ),
        (
            with_command("action = 'rpc'\nsend = '1'", groups),
            "my.toml:7:10: flows[0].action: the action rpc needs `method`; write it too",
        ),
        (
            with_command("action = 'presence'\nsend = '1'", groups),
            "my.toml:8:8: flows[0].send: the action presence has no `send`; leave it out",
        ),
        (
            with_command("action = 'send'\nsend = '1'\nexpect = 'answer'", groups),
            "my.toml:9:10: flows[0].expect: only requests and commands have an answer",
        ),
        (
            with_command("action = 'dance'", groups),
            "my.toml:7:10: flows[0].action: unknown variant `dance`",
        ),
        (
            with_command("send = '\"${stamp}\"'\nlimit = 5", groups),
            "my.toml:4:1: flows: `limit` needs `action = \"history\"`; write it too",
        ),
        (
            with_command(
                "send = '\"${stamp}\"'",
                &format!("{groups}\ncount = 3").replace("${group}", "x"),
            ),
            "my.toml:9:11: groups.channel: the groups 0 and 1 would both have the channel room-x",
        ),
        (
            with_command(
                "send = '\"${stamp}\"'",
                &format!("{groups}\n[opening]\nsend = ['a']"),
            ),
            "my.toml:10:2: opening: messages of [opening] do not go with centrifuge-json",
        ),
        (
            with_flow("'${stamp}'", "action = 'publish'"),
            "my.toml:8:10: flows[0].action: `publish` is a command of clients with a session",
        ),
    ]);
}
