//! Replays the committed corpora of `fuzz/` through the properties that the fuzz targets check.

use std::fs;
use std::path::Path;

fn replay(target: &str, files_min: usize, property: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    assert!(
        files.len() >= files_min,
        "{} has only {} files",
        folder.display(),
        files.len()
    );
    for file in files {
        // Printed by the test runner only when a property fails: the last line names the culprit.
        println!("{}", file.display());
        let bytes = fs::read(&file).expect("a readable file");
        // Miri takes minutes for a bomb.
        if !cfg!(miri) || bytes.len() <= 256 {
            property(&bytes);
        }
    }
}

#[test]
fn http_head() {
    replay("http_head", 26, myriad_wire::fuzzing::http_head);
}

#[test]
fn http_requests() {
    let property = myriad_wire::fuzzing::http_requests;
    replay("http_requests", 180, property);
}

#[test]
fn request_body() {
    replay("request_body", 24, myriad_wire::fuzzing::request_body);
}

#[test]
fn emulation_request() {
    let property = myriad_wire::fuzzing::emulation_request;
    replay("emulation_request", 30, property);
}

#[test]
fn ws_decoder() {
    replay("ws_decoder", 46, myriad_wire::fuzzing::ws_decoder);
}

#[test]
fn handshake() {
    replay("handshake", 28, myriad_wire::fuzzing::handshake);
}

#[test]
fn deflate() {
    replay("deflate", 34, myriad_wire::fuzzing::deflate);
}

#[test]
fn centrifuge_json() {
    let property = myriad_wire::fuzzing::centrifuge_json;
    replay("centrifuge_json", 28, property);
}

#[test]
fn centrifuge_protobuf() {
    let property = myriad_wire::fuzzing::centrifuge_protobuf;
    replay("centrifuge_protobuf", 20, property);
}

#[test]
fn fossil_delta() {
    replay("fossil_delta", 15, myriad_wire::fuzzing::fossil_delta);
}

#[test]
fn proxy_header() {
    replay("proxy_header", 15, myriad_wire::fuzzing::proxy_header);
}

#[test]
fn forwarded() {
    replay("forwarded", 8, myriad_wire::fuzzing::forwarded);
}
