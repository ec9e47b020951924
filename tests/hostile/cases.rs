//! Reads the cases of this folder; README.md says how they are written. Tests of several crates include this file.

use std::fs;
use std::path::{Path, PathBuf};

/// The path that a case leaves open.
const OPEN_PATH: &str = "/here";

/// What a client sends, and how it must be read.
pub(crate) struct Case {
    pub(crate) name: String,
    /// All bytes, those behind a refusal included.
    pub(crate) bytes: Vec<u8>,
    /// Where each accepted request ends, in bytes from the start.
    pub(crate) ends: Vec<usize>,
    pub(crate) last: Last,
}

/// What comes behind the accepted requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// Nothing: the connection waits for another request.
    Open,
    /// Nothing that counts: the server ends the connection behind its answer.
    Closed,
    /// A request that has not come to its end.
    Partial,
    /// A request that is refused when the first `at` bytes have come, if not before.
    Refused {
        status: u16,
        label: String,
        at: usize,
    },
}

/// All cases, with this path where they leave it open.
///
/// # Panics
/// If a file is not as README.md says.
pub(crate) fn read_all(path: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile");
    let entries = fs::read_dir(&folder).expect("the folder of the cases");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|file| file.extension().is_some_and(|kind| kind == "cases"))
        .collect();
    files.sort();
    let cases: Vec<Case> = files.iter().flat_map(|file| read(file, path)).collect();
    let mut names: Vec<_> = cases.iter().map(|case| &case.name).collect();
    names.sort();
    assert!(names.is_sorted_by(|one, two| one < two), "each name once");
    assert!(cases.len() >= 200, "{} cases", cases.len());
    cases
}

fn read(file: &Path, path: &str) -> Vec<Case> {
    let text = fs::read_to_string(file).expect("a readable file");
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let place = format!("{}:{}", file.display(), number + 1);
        if matches!(word, "" | "#" | "why") {
            continue;
        }
        if word == "case" {
            cases.push(Case {
                name: rest.to_owned(),
                bytes: Vec::new(),
                ends: Vec::new(),
                last: Last::Partial,
            });
            continue;
        }
        let case = cases.last_mut().expect("a case");
        let at = case.bytes.len();
        match word {
            ">" => {
                if case.last == Last::Open {
                    case.last = Last::Partial;
                }
                let written = rest.replace(OPEN_PATH, path);
                case.bytes.extend(unescaped(&written, &place));
            }
            "end" | "close" => {
                case.ends.push(at);
                case.last = if word == "end" {
                    Last::Open
                } else {
                    Last::Closed
                };
            }
            "refused" => {
                let (status, label) = rest.split_once(' ').expect(&place);
                case.last = Last::Refused {
                    status: status.parse().expect(&place),
                    label: label.to_owned(),
                    at,
                };
            }
            "waits" => assert_eq!(case.last, Last::Partial, "{place}"),
            _ => panic!("{place}: {word} means nothing"),
        }
    }
    cases
}

fn unescaped(text: &str, place: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('\\') {
        bytes.extend(rest[..start].bytes());
        let escape = &rest[start + 1..];
        let kind = escape.chars().next().expect(place);
        rest = &escape[kind.len_utf8()..];
        match kind {
            'r' => bytes.push(b'\r'),
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            '0' => bytes.push(0),
            '\\' => bytes.push(b'\\'),
            'x' => {
                let (digits, behind) = rest.split_at(2);
                bytes.push(u8::from_str_radix(digits, 16).expect(place));
                rest = behind;
            }
            '{' => {
                let (inside, behind) = rest.split_once('}').expect(place);
                let (piece, count) = inside.rsplit_once('*').expect(place);
                let count: usize = count.parse().expect(place);
                bytes.extend(unescaped(piece, place).repeat(count));
                rest = behind;
            }
            _ => panic!("{place}: \\{kind} is no escape"),
        }
    }
    bytes.extend(rest.bytes());
    bytes
}
