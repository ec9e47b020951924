//! `myriad plan` as people and scripts meet it: exit codes, text, JSON, errors.

use std::process::{Command, Output, Stdio};

fn plan(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_myriad"))
        .arg("plan")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

/// What was printed on both outputs, with the lines of a wrapped sentence joined.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const EIGHT_NGINX: &str = "nginx:8,workers=8,worker_connections=100000";

#[test]
fn a_chain_that_carries_ends_with_success_and_one_more_connection_with_failure() {
    let most = plan(&["-c", "3143168", "--hop", EIGHT_NGINX]);
    assert_eq!(most.status.code(), Some(0), "{}", said(&most));
    let more = plan(&[
        "-c",
        "3143169",
        "--connections-per-client",
        "2",
        "--hop",
        EIGHT_NGINX,
    ]);
    assert_eq!(more.status.code(), Some(1));
    let text = said(&more);
    assert!(
        text.contains("does NOT carry 3,143,169 connections"),
        "{text}"
    );
    assert!(
        text.contains(
            "limited by fullest worker: at most 3,143,168 connections (1,571,584 clients)"
        ),
        "{text}"
    );
    assert!(
        text.contains("Scaled out to 100,000,000 connections"),
        "{text}"
    );
}

#[test]
fn json_says_the_same() {
    let output = plan(&[
        "-c",
        "3m",
        "--hop",
        EIGHT_NGINX,
        "--hop",
        "myriad:4",
        "--json",
        "--scale-to",
        "1g",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["carries"], false);
    assert_eq!(json["weakest"]["kind"], "nginx");
    assert_eq!(json["weakest"]["resource"], "source ports");
    assert_eq!(json["weakest"]["connections"], 903_424);
    assert_eq!(json["scale_out"][0]["connections"], 1_000_000_000);
}

#[test]
fn bad_arguments_name_the_hop_and_the_parameter() {
    for (words, parts) in [
        (
            &["-c", "1m", "--hop", "nginx:4,worker_conections=5"][..],
            &["hop nginx", "worker_conections", "no such parameter"][..],
        ),
        (&["-c", "0"], &["--connections", "more than zero"]),
        (
            &["-c", "1m", "--hop", "myriad:1,tls=on"],
            &["hop myriad: tls", "write yes or no"],
        ),
        (
            &["-c", "1m", "--slow-readers", "7"],
            &["--slow-readers", "0.1%"],
        ),
        (
            &["-c", "1m", "--ping-interval", "25"],
            &["--ping-interval", "unit"],
        ),
        (
            &["-c", "1m", "--hop", "myriad:3", "--hop", "nginx:2"],
            &["hop 2 (nginx) is behind myriad", "put myriad last"],
        ),
        (&[], &["--connections"]),
    ] {
        let output = plan(words);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(104), "{words:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{words:?}: {text}");
        }
    }
}
