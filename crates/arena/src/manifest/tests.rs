use super::*;

const DEFAULTS: &str = r#"
[defaults]
kind = "websocket"
features = ["push", "echo"]
needs = []
needs_hint = ""
build = []
build_seconds_max = 5
environment = {}
processes = "ports"
start_seconds_max = 5
stop_signal = "TERM"
stop_seconds_max = 5
descriptors_spare = 500
heap = { base_mb = 0, per_1000_connections_mb = 0 }
warm_up = { connections = 0, pushes = 0, echoes = 0, requests = 0 }
socket_paths = { push = "/", echo = "/" }
broadcast = { path = "/broadcast", body = "plain" }
stats = { path = "/stats" }
[jvm]
heap = { base_mb = 100, per_1000_connections_mb = 10 }
"#;

fn read_all(entries: &str) -> Result<Vec<Contestant>, ManifestError> {
    let text = format!("{DEFAULTS}\n{entries}");
    parse(&text, Path::new("arena.toml"), Path::new("/arena"))
}

/// One contestant with these lines more, or instead.
fn read_one(lines: &str) -> Result<Contestant, ManifestError> {
    let mut entry = String::from("[[contestant]]\n");
    for line in [
        "name = \"a\"",
        "title = \"A\"",
        "language = \"c\"",
        "start = [\"x\"]",
    ] {
        let key = line.split(' ').next().unwrap();
        if !lines.lines().any(|own| own.starts_with(key)) {
            entry.push_str(line);
            entry.push('\n');
        }
    }
    read_all(&format!("{entry}{lines}\n")).map(|mut all| all.remove(0))
}

#[test]
fn what_an_entry_leaves_out_is_a_default() {
    let contestant = read_one("").unwrap();
    assert_eq!(contestant.folder, Path::new("/arena/a"));
    assert_eq!(contestant.processes, Processes::Ports);
    assert!(contestant.offers(Feature::Echo) && !contestant.offers(Feature::Request));
    assert_eq!(contestant.heap.megabytes(5_000), 0);
}

#[test]
fn jvm_languages_get_their_table_and_an_entry_stands_over_it() {
    let java = read_one("language = \"java\"").unwrap();
    assert_eq!(java.heap.megabytes(1_500), 115);
    let own = "language = \"scala\"\nheap = { base_mb = 1, per_1000_connections_mb = 2 }";
    assert_eq!(read_one(own).unwrap().heap.megabytes(1), 2);
}

#[test]
fn clients_are_held_at_their_own_paths_and_counted_there() {
    use crate::server::Mode;
    use crate::surface::Surface;
    let lines = "kind = \"held\"\n[contestant.held]\n\
                 long-poll = { path = \"/poll\", stats = { path = \"/polls\" } }\n\
                 broadcast = { path = \"/held\", body = \"stream\" }\ncreate = \"/made\"";
    let contestant = read_one(lines).unwrap();
    assert!(contestant.holds(Transport::LongPoll) && !contestant.holds(Transport::Sse));
    assert!(
        !contestant.takes_part_in_plain_runs() && read_one("").unwrap().takes_part_in_plain_runs()
    );
    let held = Surface::of(&contestant, Mode::Push, Some(Transport::LongPoll)).unwrap();
    assert_eq!(
        (
            held.scheme,
            held.path,
            held.stats.path.as_str(),
            held.create
        ),
        ("http", "/poll", "/polls", Some("/made"))
    );
    assert_eq!(held.broadcast.path, "/held");
    let failure = Surface::of(&contestant, Mode::Push, Some(Transport::Sse)).unwrap_err();
    assert!(failure.to_string().contains("`held.sse`"), "{failure}");
    let echo = Surface::of(&contestant, Mode::Echo, None).unwrap();
    assert_eq!((echo.scheme, echo.path, echo.create), ("ws", "/", None));
    assert_eq!(
        ("sse".parse(), "poll".parse::<Transport>()),
        (Ok(Transport::Sse), Err(UnknownTransport))
    );
}

#[test]
fn a_run_with_tls_has_a_command_of_its_own_where_the_entry_has_one() {
    let same = read_one("features = [\"push\", \"tls\"]").unwrap();
    assert!(same.speaks_tls() && same.takes_part_in_plain_runs());
    assert_eq!(same.start_command(true), ["x"]);
    let lines = "features = [\"tls\"]\nstart = [\"x\"]\nstart_tls = [\"y\", \"{key}\"]";
    let other = read_one(lines).unwrap();
    assert_eq!(other.start_command(true), ["y", "{key}"]);
    assert_eq!(other.start_command(false), ["x"]);
    let only = read_one("features = [\"tls\"]\nstart_tls = [\"y\"]").unwrap();
    assert!(only.speaks_tls() && !only.takes_part_in_plain_runs());
    assert!(!read_one("").unwrap().speaks_tls());
}

#[test]
fn a_contestant_with_two_descriptors_for_a_connection_has_more_processes() {
    use crate::server::processes_for;
    let connections = 10 * crate::server::descriptors_max();
    let lines = "descriptors_spare = 0\ndescriptors_per_connection = 2";
    assert_eq!(processes_for(&read_one(lines).unwrap(), connections), 20);
    assert_eq!(
        processes_for(&read_one("descriptors_spare = 0").unwrap(), connections),
        10
    );
}

/// An entry with these lines is refused, with its name, the key and a word of what is wrong.
#[track_caller]
fn expect_named(lines: &str, name: &str, key: &str, hint: &str) {
    let error = read_one(lines).unwrap_err().to_string();
    let begin = format!("arena.toml, {name}: `{key}`: ");
    assert!(error.starts_with(&begin), "{lines}: {error}");
    assert!(error.contains(hint), "{lines}: {error}");
}

#[test]
fn a_key_held_that_cannot_be_used_is_named() {
    for (lines, key, hint) in [
        ("kind = \"held\"", "held", "kind `held`"),
        (
            "held = { broadcast = { path = \"/\", body = \"plain\" } }",
            "held",
            "`long-poll`, `sse`",
        ),
        (
            "held = { sse = { path = \"/\" }, broadcast = { path = \"/\", body = \"api\" } }",
            "held.broadcast.body",
            "`stream`",
        ),
    ] {
        expect_named(lines, "a", key, hint);
    }
}

#[test]
fn every_bad_key_is_named_with_its_contestant() {
    let nested =
        "memory = { prepare = [], used = [\"x\"], used_pattern = '(\\d+)', used_unit = \"GB\" }";
    for (lines, key, hint) in [
        ("sizes = 1", "sizes", "unknown field"),
        ("kind = \"udp\"", "kind", "websocket"),
        ("features = [\"push\", \"dance\"]", "features[1]", "dance"),
        ("processes = \"many\"", "processes", "ports"),
        ("stop_signal = \"KILL\"", "stop_signal", "TERM"),
        ("build = [[]]", "build", "program"),
        ("build = [\"make\"]", "build[0]", "sequence"),
        ("start = []", "start", "program"),
        ("start = [\"x\", \"{prot}\"]", "start", "{port}"),
        ("environment = { A = \"{\" }", "environment", "placeholder"),
        ("build_seconds_max = -1", "build_seconds_max", "-1"),
        (
            "heap = { base_mb = 1 }",
            "heap.per_1000_connections_mb",
            "missing",
        ),
        (
            "heap = { base_mb = 1, per_1000_connections_mb = 1, x = 1 }",
            "heap.x",
            "unknown",
        ),
        (
            "warm_up = { connections = \"1k\", pushes = 0, echoes = 0, requests = 0 }",
            "warm_up.connections",
            "1k",
        ),
        (
            "broadcast = { path = \"/\", body = \"xml\" }",
            "broadcast.body",
            "plain",
        ),
        (
            "stats = { path = \"/\", pattern = \"(\" }",
            "stats.pattern",
            "regular",
        ),
        (
            "stats = { path = \"/\", pattern = \"x\" }",
            "stats.pattern",
            "one group",
        ),
        (
            "socket_paths = { push = \"/\" }",
            "socket_paths.echo",
            "missing",
        ),
        (
            "version_command = [\"x\"]",
            "version_pattern",
            "version_command",
        ),
        ("name = \"a/b\"", "name", "letters"),
        ("title = 7", "title", "7"),
        (nested, "memory.used_unit", "KiB"),
    ] {
        let is_named = lines.starts_with("name");
        expect_named(lines, if is_named { "a/b" } else { "a" }, key, hint);
    }
}

#[test]
fn a_key_of_runs_with_tls_that_cannot_be_used_is_named() {
    for (lines, key, hint) in [
        (
            "start = [\"x\"]\nstart_tls = [\"y\"]",
            "start_tls",
            "feature `tls`",
        ),
        (
            "features = [\"tls\"]\nstart = [\"x\", \"{key}\"]",
            "start",
            "{key}",
        ),
        (
            "features = [\"tls\"]\nkind = \"tcp\"",
            "features",
            "kind `websocket`",
        ),
        (
            "descriptors_per_connection = 0",
            "descriptors_per_connection",
            "nonzero",
        ),
    ] {
        expect_named(lines, "a", key, hint);
    }
}

#[test]
fn a_missing_key_is_named() {
    let error = read_all("[[contestant]]\nname = \"a\"\nlanguage = \"c\"\nstart = [\"x\"]")
        .unwrap_err()
        .to_string();
    assert!(error.contains("a: `title`: missing field"), "{error}");
    let error = read_all("[[contestant]]\ntitle = \"a\"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("a contestant without a name"), "{error}");
}

#[test]
fn the_manifest_itself_may_be_wrong() {
    let two = "[[contestant]]\nname = \"a\"\ntitle = \"A\"\nlanguage = \"c\"\nstart = [\"x\"]\n"
        .repeat(2);
    let message = |text: &str| read_all(text).unwrap_err().to_string();
    assert!(message(&two).contains("two contestants"));
    assert!(message("").contains("`contestant`: missing"));
    assert!(message("[extra]\n[[contestant]]\nname = \"a\"").contains("`extra`: unknown table"));
    assert!(message("[[contestant]\n").contains("arena.toml: TOML parse error"));
    let error = load(Path::new("/nowhere")).unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/arena.toml") && error.contains("--arena"),
        "{error}"
    );
}

#[test]
fn the_manifest_of_the_arena_is_whole() {
    let arena = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../arena");
    let everybody = load(&arena).unwrap();
    for contestant in &everybody {
        assert!(contestant.folder.is_dir(), "{}", contestant.name);
    }
    let own: Vec<_> = everybody
        .iter()
        .filter(|contestant| contestant.name.starts_with("myriad"))
        .map(|contestant| (contestant.processes, contestant.speaks_tls()))
        .collect();
    assert_eq!(own, [(Processes::One, true); 2]);
}
