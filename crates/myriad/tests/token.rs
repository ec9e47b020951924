//! `myriad token`, as somebody types it.

mod support;

use support::myriad;

fn run(arguments: &[&str], secret: Option<&str>) -> (bool, String, String) {
    let mut command = myriad(&[&["token"], arguments].concat());
    if let Some(secret) = secret {
        command.env("MYRIAD_CLIENT_TOKEN_HMAC_SECRET_KEY", secret);
    }
    let output = command.output().expect("a program");
    (
        output.status.success(),
        String::from_utf8(output.stdout).expect("UTF-8"),
        String::from_utf8(output.stderr).expect("UTF-8"),
    )
}

#[test]
fn a_token_is_printed_alone() {
    let signed = |secret: &str| {
        run(
            &["--user", "42", "--expires-in", "0", "--secret", secret],
            None,
        )
    };
    let (done, _, said) = signed("0123456789abcdef0123456789abcdef");
    assert!(done && said.is_empty(), "{said}");
    let (done, flag, said) = signed("s");
    assert!(
        done && said.starts_with("warning: --secret has 1 bytes: "),
        "{said}"
    );
    assert_eq!(flag.lines().count(), 1);
    assert_eq!(flag.trim().split('.').count(), 3);
    let (done, variable, said) = run(&["--user", "42", "--expires-in", "0"], Some("s"));
    assert!(done, "{said}");
    let header = |token: &str| token.split('.').next().map(str::to_owned);
    assert_eq!(header(&variable), header(&flag));
}

#[test]
fn without_a_secret_it_says_what_to_write() {
    let (done, token, said) = run(&["--user", "42"], None);
    assert!(!done && token.is_empty());
    assert!(
        said.contains("--secret") && said.contains("--config"),
        "{said}"
    );
    let (done, _, said) = run(&["--user", "42", "--secret", "sesame", "--info", "{"], None);
    assert!(!done && said.contains("write JSON"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
}
