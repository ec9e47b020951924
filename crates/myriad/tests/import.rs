//! `myriad config import`, by the program itself.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{Server, myriad};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("myriad-import-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for temporary files");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = myriad(&["config", "import"]);
    command.args(arguments).envs(variables.iter().copied());
    command.output().expect("a program")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const V5: &str = "{\"token_hmac_secret_key\": \"0123456789abcdef0123456789abcdef\",\n\"engine\": \"redis\",\n\"bogus\": 1}";

#[test]
fn the_file_is_for_its_owner_alone_and_passes_the_check() {
    let folder = Folder::new("owner");
    let source = folder.file("config.json", V5);
    let [output, report] = ["out.toml", "report.json"].map(|name| folder.path(name));
    let done = run(&[&source, "--output", &output, "--report", &report], &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(done.stdout.is_empty());
    let mode = fs::metadata(&output)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let words = stderr(&done);
    assert!(
        words.contains("  token_hmac_secret_key (line 1) -> client.token.hmac_secret_key\n"),
        "{words}"
    );
    assert!(words.contains("! engine (line 2): "), "{words}");
    assert!(words.contains("  bogus (line 3)\n"), "{words}");
    assert!(!words.contains("0123456789abcdef"), "{words}");
    let check = myriad(&["config", "check", &output])
        .output()
        .expect("a program");
    assert!(check.status.success(), "{}", stderr(&check));
    let report = fs::read_to_string(report).expect("it is there");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["version"], 5);
    assert_eq!(report["unknown"], json!([{"option": "bogus", "line": 3}]));
    assert_eq!(report["missing"][0]["decide"], true);
}

#[test]
fn nothing_is_replaced_unless_somebody_says_so() {
    let folder = Folder::new("force");
    let source = folder.file("config.json", V5);
    let output = folder.file("out.toml", "mine");
    let done = run(&[&source, "--output", &output], &[]);
    assert_eq!(done.status.code(), Some(104));
    assert!(stderr(&done).contains("--force"), "{}", stderr(&done));
    assert_eq!(fs::read_to_string(&output).expect("a file"), "mine");
    // A link that leads nowhere is something, too.
    let link = folder.path("link.toml");
    symlink("/nowhere/at/all", &link).expect("a link");
    assert_eq!(
        run(&[&source, "--output", &link], &[]).status.code(),
        Some(104)
    );
    let done = run(&[&source, "--output", &output, "--force"], &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    let text = fs::read_to_string(&output).expect("a file");
    assert!(text.contains("hmac_secret_key"), "{text}");
    let mode = fs::metadata(&output).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let done = run(&[&source, "--output", &source, "--force"], &[]);
    assert_eq!(done.status.code(), Some(104), "{}", stderr(&done));
    assert_eq!(fs::read_to_string(&source).expect("a file"), V5);
    let names = fs::read_dir(&folder.0).expect("a folder").count();
    assert_eq!(names, 3, "nothing is left beside them");
}

#[test]
fn variables_come_from_the_process_or_a_file() {
    let folder = Folder::new("variables");
    let variables = [
        ("CENTRIFUGO_CLIENT_CHANNEL_LIMIT", "77"),
        ("CENTRIFUGO_HTTP_API_KEY", "k"),
    ];
    let done = run(&["--env"], &variables);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        text.contains("channel_limit = 77"),
        "{text}{}",
        stderr(&done)
    );
    let file = folder.file("a.env", "CENTRIFUGO_CLIENT_CHANNEL_LIMIT=78\n");
    let done = run(&["--env-file", &file], &variables);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        text.contains("channel_limit = 78") && !text.contains("key ="),
        "{text}"
    );
    // Without one of the two the environment means nothing.
    let source = folder.file("config.json", V5);
    let done = run(&[&source], &variables);
    assert!(!String::from_utf8_lossy(&done.stdout).contains("channel_limit"));
}

#[test]
fn what_cannot_be_imported_ends_with_104_and_says_where() {
    let folder = Folder::new("refused");
    let bomb = (1..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
        let many = format!("*a{}, ", level - 1).repeat(10);
        text + &format!("a{level}: &a{level} [{many}x]\n")
    });
    for (name, text, words) in [
        (
            "a.json",
            "{\"client\": {\"channel_limit\": \"x\"}}",
            "error: line 1: client.channel_limit = x: ",
        ),
        (
            "b.json",
            "{\n\"client\": ",
            "b.json: line 2: it is not JSON",
        ),
        ("c.yaml", &*bomb, "100,000 values"),
        (
            "d.json",
            "{\"client\": {\"token\": {\"rsa_public_key\": \"no PEM\"}}}",
            "client.token.rsa_public_key: ",
        ),
        ("e.json", "{}", "no option of Centrifugo"),
        ("f.json", &"[".repeat(1 << 20), "f.json: "),
    ] {
        let source = folder.file(name, text);
        let output = folder.path("out.toml");
        let done = run(&[&source, "--output", &output], &[]);
        assert_eq!(done.status.code(), Some(104), "{name}");
        let said = stderr(&done);
        assert!(said.contains(words) && said.len() < 2_000, "{name}: {said}");
        assert!(!Path::new(&output).exists(), "{name}");
    }
    let no_text = folder.path("no-text.json");
    fs::write(&no_text, [0xff, 0xfe]).expect("a file");
    for arguments in [
        &[][..],
        &["/nowhere/at/all.json"],
        &["/dev/zero"],
        &[&*no_text],
        &["--env", "--env-file", "x"],
    ] {
        let done = run(arguments, &[]);
        assert_eq!(done.status.code(), Some(104), "{arguments:?}");
    }
    let long = folder.path("long.json");
    let file = fs::File::create(&long).expect("a file");
    // It takes no room on the disk.
    file.set_len(1 << 30).expect("a long file");
    let done = run(&[&long], &[]);
    assert_eq!(done.status.code(), Some(104));
    assert!(
        stderr(&done).contains("more than 4 MiB"),
        "{}",
        stderr(&done)
    );
}

#[test]
fn an_imported_file_serves() {
    let folder = Folder::new("serves");
    let v6 = "client:\n  insecure: true\nchannel:\n  namespaces:\n    - name: chat\n      allow_subscribe_for_client: true\n      \
              allow_subscribe_for_anonymous: true\n";
    let source = folder.file("config.yaml", v6);
    let output = folder.path("out.toml");
    let done = run(&[&source, "--output", &output], &[]);
    assert!(done.status.success(), "{}", stderr(&done));
    let server = Server::start(&["--config", &output, "--shards", "1"]);
    assert_eq!(server.upgrade("/raw?channel=chat:a").1, "HTTP/1.1 101");
    assert_eq!(server.upgrade("/raw?channel=other:a").1, "HTTP/1.1 400");
}
