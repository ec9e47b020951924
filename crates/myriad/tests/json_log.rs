//! With `--log-format json` every line on standard error is a line of JSON.

mod support;

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use support::{SIGTERM, Server, myriad};

/// The lines, which must all be objects with a level, a time and a message.
fn messages(lines: &[String]) -> Vec<(String, String)> {
    let read = |line: &String| {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let text = |key: &str| {
            object[key]
                .as_str()
                .unwrap_or_else(|| panic!("{line}"))
                .to_owned()
        };
        // Microseconds, whoever has written the line.
        let is_one_form = text("timestamp").len() == "2026-01-02T03:04:05.678901Z".len();
        assert!(is_one_form && text("timestamp").ends_with('Z'), "{line}");
        (text("level"), text("message"))
    };
    lines.iter().map(read).collect()
}

/// The lines of a command that ends by itself.
fn lines_of(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("a program");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).expect("text");
    text.lines().map(str::to_owned).collect()
}

fn file(name: &str, text: &str) -> std::path::PathBuf {
    let name = format!("myriad-json-log-{}-{name}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

#[test]
fn a_server_with_a_key_of_its_own_says_everything_in_json() {
    let path = file(
        "good",
        "anonymous = true\nlog-format = \"json\"\nlog = \"debug\"\ndrain = \"0s\"\n",
    );
    let mut process = myriad(&["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program");
    let stderr = process.stderr.take().expect("piped");
    let mut lines = Vec::new();
    let kill = |signal: &str| {
        let id = process.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .expect("a program")
                .success()
        );
    };
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if line.contains("listening on") {
            std::fs::write(&path, "anonymous = true\nno-such-key = 1\nshards = 0\n")
                .expect("a file");
            kill("-HUP");
        }
        if line.contains("is not in force") {
            kill("-TERM");
        }
        lines.push(line);
    }
    assert!(process.wait().expect("a child").success());
    std::fs::remove_file(path).expect("it was there");
    let messages = messages(&lines);
    for (level, words) in [
        ("INFO", "API key for this run: "),
        ("INFO", "listening on 127.0.0.1:"),
        ("ERROR", "no-such-key: there is no such key"),
        ("ERROR", "is not in force"),
        ("INFO", "stopping"),
    ] {
        let is_said = |(is, said): &(String, String)| is == level && said.contains(words);
        assert!(messages.iter().any(is_said), "{words}: {messages:#?}");
    }
}

#[test]
fn mistakes_at_the_start_are_lines_of_json() {
    let path = file(
        "bad",
        "log-format = \"json\"\nno-such-key = 1\nshards = 0\n",
    );
    let told = messages(&lines_of(myriad(&["serve", "--config"]).arg(&path)));
    std::fs::remove_file(path).expect("it was there");
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].1.contains("line 2: no-such-key"), "{told:#?}");
    assert!(told[1].1.contains("line 3: shards = 0"), "{told:#?}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut command = myriad(&[
        "serve",
        "--dev",
        "--log-format",
        "json",
        "--listen",
        &address,
    ]);
    let told = messages(&lines_of(&mut command));
    let last = told.last().expect("an error");
    assert_eq!(last.0, "ERROR");
    assert!(last.1.contains(&address), "{told:#?}");
}

#[test]
fn refused_clients_are_lines_of_json() {
    let server = Server::start(&["--log-format", "json", "--drain", "0s"]);
    drop(server.upgrade("/raw"));
    server.signal(SIGTERM);
    let (status, lines) = server.wait();
    assert!(status.success());
    messages(&lines);
}
