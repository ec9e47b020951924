//! Tests of the tools.

use super::{ToolError, check, compact, export, import};
use crate::disk::sim::SimDisk;
use crate::{Body, Durability, Limits, Log, LogSettings, Opening, Record, Unit, Why};

const OPENING: Opening = Opening {
    now_ms: 1_000_000,
    random: 5,
};

fn settings() -> LogSettings {
    LogSettings {
        segment_bytes: 2000,
        ..LogSettings::default()
    }
}

fn with_body<'r>(record: Record<'r>, body: Body<'r>, offset: u64) -> Record<'r> {
    Record {
        body,
        offset,
        ..record
    }
}

/// A log with something of every kind, of which most is of no use any more.
fn written() -> SimDisk {
    let disk = SimDisk::new();
    let (mut log, _) = Log::open(disk.clone(), settings(), OPENING, |_, _| ()).expect("a log");
    let limits = Limits {
        size: 5,
        ttl_s: 3600,
    };
    let why = Why::Opened;
    let mut write = |offset, body: &dyn Fn(&mut Unit, Record<'_>)| {
        let record = Record {
            channel: "news",
            epoch: 9,
            offset,
            time_ms: 1_000_000,
            body: Body::Deleted,
        };
        let mut unit = Unit::new();
        body(&mut unit, record);
        log.append(&unit, 1_000_000).expect("room");
        log.commit(Durability::Synced).expect("a commit");
    };
    let push = |unit: &mut Unit, record: Record<'_>, body: Body<'_>| {
        let offset = record.offset;
        unit.push(with_body(record, body, offset))
            .expect("a record");
    };
    write(0, &|unit, record| {
        push(
            unit,
            record,
            Body::Channel {
                why,
                lost: 0,
                limits,
            },
        );
    });
    write(0, &|unit, record| {
        push(unit, record, Body::Stream(b"text/plain"))
    });
    for offset in 1..=100_u64 {
        write(offset, &|unit, record| {
            let content = format!("content {offset}");
            push(unit, record, Body::Publication(content.as_bytes()));
            let value = offset.to_le_bytes();
            let record = Record {
                offset: 0,
                ..record
            };
            push(
                unit,
                record,
                Body::Producer {
                    key: b"p",
                    value: &value,
                },
            );
        });
    }
    write(100, &|unit, record| push(unit, record, Body::Key(b"once")));
    drop(log);
    disk.crash(|| 0);
    disk
}

fn lines(disk: &SimDisk) -> String {
    let mut text = Vec::new();
    let count = export(disk, &mut text, 1_000_000, |_, _| ()).expect("an export");
    let text = String::from_utf8(text).expect("JSON");
    assert_eq!(text.lines().count() as u64, count);
    text
}

#[test]
fn an_import_of_an_export_exports_the_same() {
    let disk = written();
    let text = lines(&disk);
    // A channel, 5 publications, a stream, a producer, a key.
    assert_eq!(text.lines().count(), 9, "{text}");
    assert!(text.contains(r#""kind":"channel","channel":"news","epoch":9,"last":100,"lost":95"#));
    let other = SimDisk::new();
    let imported = import(other.clone(), text.as_bytes(), settings(), OPENING, |_| ());
    assert_eq!(imported.expect("an import"), 9);
    other.crash(|| 0);
    assert_eq!(lines(&other), text);
    let again = import(other, text.as_bytes(), settings(), OPENING, |_| ());
    assert!(matches!(again, Err(ToolError::NotEmpty)));
    let bad = import(SimDisk::new(), &b"{}\n"[..], settings(), OPENING, |_| ());
    assert!(matches!(bad, Err(ToolError::Line { line: 1, .. })));
}

#[test]
fn compaction_keeps_what_is_of_use_and_a_check_reads_all_of_it() {
    let disk = written();
    let text = lines(&disk);
    let before = check(&disk, |_, _| ()).expect("a check");
    assert_eq!((before.publications, before.bad.len()), (100, 0));
    let (bytes, left) = compact(disk.clone(), settings(), OPENING, |_, _| ()).expect("room");
    assert!(left * 5 < bytes, "{bytes} to {left}");
    disk.crash(|| 0);
    let after = check(&disk, |_, _| ()).expect("a check");
    assert_eq!((after.publications, after.bad.len()), (5, 0));
    assert_eq!(lines(&disk), text);
    disk.flip("0000000001.log", 3000, 1);
    assert!(disk.flip(
        &crate::segment_name(u32::try_from(before.segments + 1).expect("few")),
        100,
        1
    ));
    assert_eq!(check(&disk, |_, _| ()).expect("a check").bad.len(), 1);
}
