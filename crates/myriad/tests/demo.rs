//! What `myriad demo` refuses before it starts anything, and a small run over TLS.

mod support;

use std::path::Path;
use std::process::Output;
use support::myriad;

fn demo(arguments: &[&str]) -> (Output, String) {
    let output = myriad(&["demo"])
        .args(arguments)
        .output()
        .expect("a program");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

#[test]
fn a_demonstration_of_nothing_is_a_bad_argument() {
    for option in ["-c", "--connections"] {
        let (output, errors) = demo(&[option, "0", "--json", "/dev/null"]);
        assert_eq!(output.status.code(), Some(104), "{output:?}");
        assert!(errors.contains("give 1 or more"), "{errors}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_at_once() {
    let (output, errors) = demo(&["-c", "10", "--json", "/no/such/folder/demo.json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(errors.contains("/no/such/folder/demo.json"), "{errors}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_demonstration_over_tls_makes_its_certificate_and_takes_it_away() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let json = folder.join("demo.json");
    let path = json.display().to_string();
    let mut command = myriad(&["demo", "--tls", "-c", "40", "--json", &path]);
    let output = command.env("TMPDIR", &folder).output().expect("a program");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{output:?}");
    assert!(said.contains("swarm 'wss://127.0.0.1:"), "{said}");
    assert!(said.contains("40, with TLS"), "{said}");
    let report = std::fs::read_to_string(&json).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(
        (&report["tls"], &report["verdict"]),
        (&true.into(), &"reached_all".into())
    );
    let left: Vec<_> = std::fs::read_dir(&folder).expect("a folder").collect();
    assert_eq!(left.len(), 1, "only the report: {left:?}");
    std::fs::remove_dir_all(&folder).expect("a folder");
}
