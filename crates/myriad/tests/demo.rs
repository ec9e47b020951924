//! What `myriad demo` refuses before it starts anything.

mod support;

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
