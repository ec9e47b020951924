//! Replays the committed corpus of `fuzz/` through the property that the fuzz target checks, and plays random scripts.

use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

#[test]
fn tls_records() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tls_records");
    let files = fs::read_dir(&folder).expect("a corpus");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= 20, "only {} files", files.len());
    for file in files {
        // Printed by the test runner only when the property fails: the last line names the culprit.
        println!("{}", file.display());
        myriad_tls::fuzzing::records(&fs::read(&file).expect("a readable file"));
    }
}

/// A step of a script: often what a peer may send, and sometimes anything.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let padded = |text: Vec<u8>| {
        (Just(text), 0..4_usize).prop_map(|(text, zeros)| [text, vec![0; zeros]].concat())
    };
    let known = prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(|text| [text, vec![23]].concat()),
        (0..3_u8).prop_map(|value| vec![24, 0, 0, 1, value, 22]),
        any::<[u8; 2]>().prop_map(|alert| [&alert[..], &[21]].concat()),
        Just(vec![4, 0, 0, 1, 9, 22]),
        vec(any::<u8>(), 0..12),
    ];
    (known.prop_flat_map(padded), weighted(0.03)).prop_map(|(bytes, is_raw)| {
        let [.., high, low] = bytes.len().to_be_bytes();
        let high = high | if is_raw { 0x80 } else { 0 };
        [vec![high, low], bytes].concat()
    })
}

proptest! {
    #[test]
    fn scripts_of_a_peer(choice in any::<u8>(), steps in vec(step(), 0..40)) {
        myriad_tls::fuzzing::records(&[vec![choice], steps.concat()].concat());
    }
}
