//! The hostile requests of `tests/hostile`, read by the parser of both planes and by a second reader.

#[path = "../../../tests/hostile/cases.rs"]
mod cases;

use cases::{Case, Last};
use myriad_wire::fuzzing::{LastRequest, Requests, check_requests, read_requests};
use myriad_wire::http::HeadLimits;
use std::fs;
use std::path::Path;

/// What counts of a case. Whether the connection ends behind a request is not the parser's to say.
fn counting(case: &Case) -> &[u8] {
    match case.last {
        Last::Closed => &case.bytes[..*case.ends.last().expect("an answer")],
        _ => &case.bytes,
    }
}

#[test]
fn each_request_ends_where_its_case_says() {
    for case in cases::read_all("/here") {
        println!("{}", case.name);
        let last = match &case.last {
            Last::Open | Last::Closed => LastRequest::None,
            Last::Partial => LastRequest::Partial,
            Last::Refused { status, label, .. } => {
                let labels = [
                    "malformed_head",
                    "head_too_long",
                    "too_many_headers",
                    "host",
                    "transfer_coding",
                ];
                let more = ["framing", "http_version", "expectation", "connect", "body"];
                let known = labels.iter().chain(&more).find(|known| *known == label);
                LastRequest::Refused(*status, known.expect("a label that exists"))
            }
        };
        let expected = Requests {
            ends: case.ends.clone(),
            last,
        };
        let read = check_requests(counting(&case), HeadLimits::default());
        assert_eq!(read, expected, "{}", case.name);
        if let Last::Refused { at, .. } = case.last {
            // What follows changes nothing, and nobody waits for it.
            let begun = read_requests([&case.bytes[..at]], HeadLimits::default());
            assert_eq!(begun, expected, "{} in front of its end", case.name);
        }
    }
}

/// The fuzzer starts from these cases. `MYRIAD_WRITE_SEEDS=1 cargo test -p myriad-wire --test hostile` writes the seeds anew.
#[test]
fn each_case_is_a_seed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/http_requests");
    let writes = std::env::var_os("MYRIAD_WRITE_SEEDS").is_some();
    for case in cases::read_all("/here") {
        // Repetitions are too long for a fuzzer.
        if case.bytes.len() > 1024 {
            continue;
        }
        let seed = [&[0], counting(&case)].concat();
        let file = folder.join(&case.name);
        if writes {
            fs::write(&file, &seed).expect("a folder to write to");
        }
        let written = fs::read(&file).unwrap_or_default();
        assert!(
            written == seed,
            "{} is not the case: see above",
            file.display()
        );
    }
}
