//! `myriad config`, variables of the environment, and SIGHUP, by the program itself.

mod support;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{SIGTERM, Server, myriad};

const SIGHUP: i32 = 1;

/// A file that is removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("myriad-{}-{name}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("a directory for temporary files");
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = myriad(arguments);
    command.envs(variables.iter().copied());
    command.output().expect("a program")
}

#[test]
fn the_default_file_passes_the_check() {
    let default = run(&["config", "default"], &[]);
    assert!(default.status.success());
    let text = String::from_utf8(default.stdout).expect("UTF-8");
    assert!(text.contains("\n#ping-interval = \"25s\"\n"), "{text}");
    let file = File::new("default", &text);
    let check = run(&["config", "check", file.path()], &[]);
    assert!(check.status.success(), "{check:?}");
    let warnings = String::from_utf8_lossy(&check.stderr);
    assert!(
        warnings.contains("warning: nobody can connect"),
        "{warnings}"
    );
}

#[test]
fn the_check_names_all_mistakes() {
    let file = File::new("mistakes", "drain = \"soon\"\nmax-conections = 1\n");
    for command in [
        &["config", "check", file.path()][..],
        &["serve", "--config", file.path()],
    ] {
        let output = run(command, &[]);
        assert_eq!(output.status.code(), Some(104), "{output:?}");
        let mistakes = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = mistakes.lines().collect();
        assert_eq!(lines.len(), 2, "{mistakes}");
        assert!(lines[0].contains("line 1: drain: "), "{mistakes}");
        assert!(lines[1].contains("line 2: max-conections: "), "{mistakes}");
    }
}

#[test]
fn variables_are_checked_if_somebody_asks() {
    let file = File::new("variables", "anonymous = true\n");
    let variables = [("MYRIAD_SHARDS", "999")];
    assert!(
        run(&["config", "check", file.path()], &variables)
            .status
            .success()
    );
    let output = run(&["config", "check", "--env", file.path()], &variables);
    let mistakes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(104));
    assert_eq!(
        mistakes,
        "error: variable MYRIAD_SHARDS = 999: choose 1 to 256\n"
    );
}

#[test]
fn a_hang_up_reloads_the_file() {
    let namespace = |name: &str| format!("[[channel.namespaces]]\nname = \"{name}\"\n");
    let file = File::new("reload", &namespace("old"));
    let server = Server::start(&["--config", file.path(), "--shards", "1"]);
    assert_eq!(server.upgrade("/raw?channel=new:a").1, "HTTP/1.1 400");
    file.write(&format!(
        "drain = \"1s\"\nhandshake-timeout = \"9s\"\n{}",
        namespace("new")
    ));
    server.signal(SIGHUP);
    for line in [
        "SIGHUP: channel.namespaces[\"new\"] is new, and works at once",
        "SIGHUP: channel.namespaces[\"old\"] has gone",
        "SIGHUP: handshake-timeout: \"10s\" -> \"9s\"",
        "SIGHUP: drain: \"10s\" -> \"1s\"; that needs a restart",
        "is in force: 3 changes",
    ] {
        server.wait_for_line(line);
    }
    assert_eq!(server.upgrade("/raw?channel=new:a").1, "HTTP/1.1 101");
    file.write("handshake-timeout = \"never\"\n[client]\nchannel_limit = 0\n");
    server.signal(SIGHUP);
    server.wait_for_line("line 1: handshake-timeout: ");
    server.wait_for_line("is not in force");
    assert_eq!(server.upgrade("/raw?channel=new:a").1, "HTTP/1.1 101");
}

#[test]
fn a_hang_up_while_the_file_is_empty_changes_nothing() {
    let whole =
        "log = \"debug\"\n[channel.without_namespace]\nhistory_size = 9\nhistory_ttl = \"60s\"\n";
    let file = File::new("emptied", whole);
    let server = Server::start(&["--config", file.path(), "--shards", "1"]);
    file.write("");
    server.signal(SIGHUP);
    server.wait_for_line("it is empty");
    server.wait_for_line("is not in force");
    // The log is as it was, too.
    file.write(whole);
    server.signal(SIGHUP);
    server.wait_for_line("is in force: 0 changes");
}

/// A pipe that nobody writes to.
fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("a program").success());
}

/// Puts something else in the place of a file.
struct Replaced<'a> {
    what: &'static str,
    put: fn(&Path),
    said: &'a str,
}

/// Between two signals the place of the file has what no configuration is. The server says so, runs on, and obeys the next signal.
#[test]
fn a_hang_up_waits_for_nothing_that_is_no_file() {
    let whole = "handshake-timeout = \"9s\"\n";
    let cases = [
        Replaced {
            what: "a pipe",
            put: make_pipe,
            said: "it is a pipe or a device, and no file",
        },
        Replaced {
            what: "a device without an end",
            put: |path| symlink("/dev/zero", path).expect("a link"),
            said: "it is a pipe or a device, and no file",
        },
        Replaced {
            what: "a directory",
            put: |path| std::fs::create_dir(path).expect("a directory"),
            said: "is a directory",
        },
        Replaced {
            what: "nothing",
            put: |_| (),
            said: "No such file or directory",
        },
        Replaced {
            what: "bytes that are no text",
            put: |path| std::fs::write(path, [0xff; 4096]).expect("a file"),
            said: "it is no text in UTF-8",
        },
        Replaced {
            what: "300 MB",
            put: |path| {
                let file = std::fs::File::create(path).expect("a file");
                file.set_len(300_000_000).expect("a length");
            },
            said: "it has more than 16 MiB",
        },
        Replaced {
            what: "half of a file",
            put: |path| std::fs::write(path, "handshake-timeout = \"9").expect("a file"),
            said: "line 1",
        },
    ];
    let file = File::new("no-file", whole);
    let path = &*file.0;
    let remove = || {
        let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path));
    };
    let server = Server::start(&["--config", file.path(), "--shards", "1"]);
    let in_force = "myriad_config_last_reload_successful";
    for Replaced { what, put, said } in cases {
        remove();
        put(path);
        server.signal(SIGHUP);
        server.wait_for_line(said);
        server.wait_for_line("is not in force; the server runs on as before");
        server.wait_until(what, |server| server.metric(in_force) == 0.0);
        remove();
        // Windows writes a byte order mark.
        file.write(&format!("\u{feff}{whole}"));
        server.signal(SIGHUP);
        server.wait_for_line("is in force: 0 changes");
        server.wait_until(what, |server| server.metric(in_force) == 1.0);
    }
    remove();
    make_pipe(path);
    server.signal(SIGHUP);
    server.signal(SIGTERM);
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_server_does_not_start_with_a_pipe_for_a_file() {
    let file = File::new("pipe", "");
    std::fs::remove_file(&file.0).expect("a file");
    make_pipe(&file.0);
    for command in [
        &["config", "check", file.path()][..],
        &["serve", "--config", file.path()],
    ] {
        let output = run(command, &[]);
        assert_eq!(output.status.code(), Some(104), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("it is a pipe or a device, and no file"),
            "{said}"
        );
    }
}

/// As systemd makes it for `LoadCredential`: a directory and a file that only the service may read, and that nobody changes.
#[test]
fn a_hang_up_says_that_a_credential_is_a_copy() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = std::env::temp_dir().join(format!("myriad-credentials-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("myriad.toml");
    std::fs::write(&file, "handshake-timeout = \"9s\"\n").expect("a file");
    let set = |path: &PathBuf, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("it is ours");
    };
    set(&file, 0o400);
    set(&directory, 0o500);
    let mut command = myriad(&[]);
    command.env("CREDENTIALS_DIRECTORY", &directory);
    let path = file.to_str().expect("UTF-8");
    let server = Server::start_with(command, &["--config", path, "--shards", "1"]);
    server.signal(SIGHUP);
    server.wait_for_line("it is the copy that systemd made at the start (LoadCredential)");
    // Newer ones can make the copy again.
    set(&directory, 0o700);
    set(&file, 0o600);
    std::fs::write(&file, "handshake-timeout = \"8s\"\n").expect("a file");
    server.signal(SIGHUP);
    server.wait_for_line("handshake-timeout: \"9s\" -> \"8s\"");
    drop(server);
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

#[test]
fn a_hang_up_switches_the_debug_log_on_and_off() {
    let file = File::new("log", "");
    let server = Server::start(&["--config", file.path(), "--shards", "1"]);
    file.write("log = \"debug\"\n");
    server.signal(SIGHUP);
    server.wait_for_line("SIGHUP: log: \"info\" -> \"debug\"");
    let (stream, _) = server.upgrade("/raw?channel=a");
    server.wait_for_line(" upgraded: /raw");
    drop(stream);
    file.write("log = \"info\"\n");
    server.signal(SIGHUP);
    server.wait_for_line("SIGHUP: log: \"debug\" -> \"info\"");
}

#[test]
fn a_hang_up_stops_a_server_without_a_file() {
    let server = Server::start(&["--drain", "0s"]);
    server.signal(SIGHUP);
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
}
