//! Replays the committed corpus of `fuzz/` through the property that the fuzz target checks.

use std::fs;
use std::path::Path;

#[test]
fn journal_segment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/journal_segment");
    let files = fs::read_dir(&folder).expect("a corpus");
    let mut count = 0;
    for file in files {
        let path = file.expect("a file").path();
        // Printed by the test runner only when the property fails: the last line names the culprit.
        println!("{}", path.display());
        myriad_journal::fuzzing::segment(&fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 5, "{count} inputs");
}
