//! Fossil deltas: a publication told as its difference to the one before.
//!
//! A delta is text and literal bytes: the target's size and a line break, then commands, then the target's checksum and `;`.
//! `N@O,` copies N bytes of the base from offset O; `N:` is followed by N literal bytes. Numbers are in base 64, the highest
//! digit first. The checksum is the sum of the target's 32-bit words, big-endian, the last one filled up with zeros.

use std::ops::Range;

/// Bytes of a block, the shortest copy that is looked for.
const BLOCK_BYTES: usize = 16;
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
/// The multiplier of the rolling hash: any odd number with well-mixed bits.
const MULTIPLIER: u32 = 0x9e37_79b1;

/// A delta that is smaller than its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta(pub Vec<u8>);

/// The delta from `base` to `target`; none if it would not be smaller than the target. For clients that take bytes: its
/// literal bytes may be parts of characters.
///
/// Takes time in proportion to both: each block of the base is remembered once, so no input makes a long search.
#[must_use]
pub fn make_delta(base: &[u8], target: &[u8]) -> Option<Delta> {
    write_delta(base, target, Cuts::Anywhere).map(Delta)
}

/// [`make_delta`] of texts, as text: for JSON clients, which get a delta as a string. Its sizes and offsets still count
/// bytes of UTF-8.
///
/// Two characters may begin or end with the same bytes, as `é` and `è` do. Where a copy would begin or end within a
/// character, this one is shorter, and the whole character is literal.
#[must_use]
pub fn make_text_delta(base: &str, target: &str) -> Option<String> {
    let delta = write_delta(base.as_bytes(), target.as_bytes(), Cuts::BetweenCharacters)?;
    let delta = String::from_utf8(delta);
    Some(delta.expect("literals are whole characters, the rest is ASCII"))
}

/// Where a copy may begin and end in the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cuts {
    Anywhere,
    /// The target is UTF-8.
    BetweenCharacters,
}

fn write_delta(base: &[u8], target: &[u8], cuts: Cuts) -> Option<Vec<u8>> {
    let mut delta = Vec::with_capacity(target.len().min(256));
    push_number(&mut delta, target.len() as u64);
    delta.push(b'\n');
    let blocks = Blocks::of(base);
    // Where the literal bytes begin that no copy covers yet.
    let mut literal = 0;
    let mut at = 0;
    let mut hash = Rolling::at(target, 0);
    while let Some(block) = target.get(at..at + BLOCK_BYTES) {
        let found = blocks
            .find(hash.0)
            .filter(|&offset| base[offset..offset + BLOCK_BYTES] == *block);
        let Some(offset) = found else {
            hash.roll(target, at);
            at += 1;
            continue;
        };
        let before = common_suffix(&base[..offset], &target[literal..at]);
        let after = common_prefix(&base[offset..], &target[at..]);
        let copy = cuts.narrow(target, at - before..at + after);
        push_literal(&mut delta, &target[literal..copy.start]);
        push_number(&mut delta, copy.len() as u64);
        delta.push(b'@');
        push_number(&mut delta, (offset + copy.start - at) as u64);
        delta.push(b',');
        if delta.len() >= target.len() {
            return None;
        }
        at = copy.end;
        literal = at;
        hash = Rolling::at(target, at);
    }
    push_literal(&mut delta, &target[literal..]);
    push_number(&mut delta, u64::from(checksum(target)));
    delta.push(b';');
    (delta.len() < target.len()).then_some(delta)
}

impl Cuts {
    /// The part of a copy that may be copied. It loses three bytes at each end at most, so a block's most stays.
    fn narrow(self, target: &[u8], copy: Range<usize>) -> Range<usize> {
        // Bytes of a character after its first are 10xxxxxx.
        let is_within = |at: &usize| target.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
        match self {
            Self::Anywhere => copy,
            Self::BetweenCharacters => {
                let within_start = (copy.start..).take_while(is_within).count();
                let within_end = (copy.start..=copy.end).rev().take_while(is_within).count();
                copy.start + within_start..copy.end - within_end
            }
        }
    }
}

/// What a delta makes of its base; none if it is not a delta of this base, or would make more than `bytes_max` bytes.
///
/// A few bytes of a delta can copy the whole base, so the limit is also the limit of its work.
#[must_use]
pub fn apply_delta(base: &[u8], delta: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut input = delta;
    let size = usize::try_from(take_number(&mut input)?).ok()?;
    if size > bytes_max {
        return None;
    }
    input = input.strip_prefix(b"\n")?;
    let mut target = Vec::new();
    loop {
        let count = take_number(&mut input)?;
        let (&command, rest) = input.split_first()?;
        input = rest;
        let length = usize::try_from(count).ok();
        let fits = length.filter(|length| *length <= size - target.len());
        match command {
            b'@' => {
                let offset = usize::try_from(take_number(&mut input)?).ok()?;
                input = input.strip_prefix(b",")?;
                let end = offset.checked_add(fits?)?;
                target.extend_from_slice(base.get(offset..end)?);
            }
            b':' => {
                let (literal, rest) = input.split_at_checked(fits?)?;
                input = rest;
                target.extend_from_slice(literal);
            }
            b';' => {
                let is_whole = input.is_empty() && target.len() == size;
                let is_right = is_whole && u64::from(checksum(&target)) == count;
                return is_right.then_some(target);
            }
            _ => return None,
        }
    }
}

/// The blocks of a base by their hash; of blocks with equal hash bits, the first.
struct Blocks {
    /// Offsets in blocks, plus one; 0 for none.
    table: Vec<u32>,
    shift: u32,
}

impl Blocks {
    fn of(base: &[u8]) -> Self {
        let count = base.len() / BLOCK_BYTES;
        let bits = (2 * count)
            .next_power_of_two()
            .trailing_zeros()
            .clamp(4, 24);
        let mut blocks = Self {
            table: vec![0; 1 << bits],
            shift: u32::BITS - bits,
        };
        for (index, block) in base.chunks_exact(BLOCK_BYTES).enumerate() {
            let slot = blocks.slot(Rolling::at(block, 0).0);
            let entry = &mut blocks.table[slot];
            if *entry == 0 {
                *entry = u32::try_from(index + 1).unwrap_or(0);
            }
        }
        blocks
    }

    fn slot(&self, hash: u32) -> usize {
        (hash.wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    /// The offset in the base of a block that may have this hash.
    fn find(&self, hash: u32) -> Option<usize> {
        let index = self.table[self.slot(hash)].checked_sub(1)?;
        Some(index as usize * BLOCK_BYTES)
    }
}

/// The hash of the block at a place, which moves on by a byte in constant time.
struct Rolling(u32);

impl Rolling {
    fn at(bytes: &[u8], at: usize) -> Self {
        let block = bytes.get(at..at + BLOCK_BYTES).unwrap_or_default();
        Self(block.iter().fold(0, |hash: u32, byte| {
            hash.wrapping_mul(MULTIPLIER).wrapping_add(u32::from(*byte))
        }))
    }

    /// Moves from the block at `at` to the next one.
    fn roll(&mut self, bytes: &[u8], at: usize) {
        /// What a block's first byte was multiplied with.
        const LEAVING: u32 = MULTIPLIER.wrapping_pow(15);
        const { assert!(BLOCK_BYTES == 16) };
        let Some(next) = bytes.get(at + BLOCK_BYTES) else {
            return;
        };
        let without = self
            .0
            .wrapping_sub(u32::from(bytes[at]).wrapping_mul(LEAVING));
        self.0 = without
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(u32::from(*next));
    }
}

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

fn push_literal(delta: &mut Vec<u8>, literal: &[u8]) {
    if !literal.is_empty() {
        push_number(delta, literal.len() as u64);
        delta.push(b':');
        delta.extend_from_slice(literal);
    }
}

fn push_number(delta: &mut Vec<u8>, value: u64) {
    let digits = (u64::BITS - value.leading_zeros()).div_ceil(6).max(1);
    for digit in (0..digits).rev() {
        delta.push(DIGITS[(value >> (6 * digit) & 63) as usize]);
    }
}

fn take_number(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut count = 0;
    while let Some((digit, rest)) = input
        .split_first()
        .and_then(|(byte, rest)| Some((DIGITS.iter().position(|known| known == byte)?, rest)))
    {
        // More digits than any number of ours has would overflow.
        count += 1;
        if count > 10 {
            return None;
        }
        value = value << 6 | digit as u64;
        *input = rest;
    }
    (count > 0).then_some(value)
}

fn checksum(target: &[u8]) -> u32 {
    target.chunks(4).fold(0_u32, |sum, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.wrapping_add(u32::from_be_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::{apply_delta, checksum, make_delta, make_text_delta, push_number};
    use proptest::prelude::*;
    use proptest::sample::Index;

    /// Larger than any target of these tests.
    const BYTES_MAX: usize = 10_000;

    #[track_caller]
    fn assert_gives(base: &[u8], delta: &[u8], target: &[u8]) {
        assert_eq!(
            apply_delta(base, delta, target.len()).as_deref(),
            Some(target),
            "{}",
            String::from_utf8_lossy(delta)
        );
    }

    /// Both kinds of delta give the target, and save something.
    fn assert_round_trip(base: &str, target: &str) {
        if let Some(delta) = make_delta(base.as_bytes(), target.as_bytes()) {
            assert!(delta.0.len() < target.len());
            assert_gives(base.as_bytes(), &delta.0, target.as_bytes());
        }
        if let Some(delta) = make_text_delta(base, target) {
            assert!(delta.len() < target.len());
            assert_gives(base.as_bytes(), delta.as_bytes(), target.as_bytes());
        }
    }

    #[test]
    fn numbers_are_in_base_64_with_the_highest_digit_first() {
        for (value, digits) in [
            (0, "0"),
            (63, "~"),
            (64, "10"),
            (4095, "~~"),
            (1 << 32, "400000"),
        ] {
            let mut out = Vec::new();
            push_number(&mut out, value);
            assert_eq!(String::from_utf8(out).expect("ASCII"), digits);
        }
    }

    #[test]
    fn the_checksum_fills_the_last_word_with_zeros() {
        assert_eq!(checksum(&[1, 2, 3, 4, 5]), 0x0102_0304 + 0x0500_0000);
        assert_eq!(checksum(&[]), 0);
    }

    #[test]
    fn a_delta_copies_what_stayed() {
        let base = br#"{"temperature": 21.5, "humidity": 40, "station": "north-east, roof"}"#;
        let target = br#"{"temperature": 21.6, "humidity": 40, "station": "north-east, roof"}"#;
        let delta = make_delta(base, target).expect("much stayed");
        assert!(delta.0.len() < 30, "{}", String::from_utf8_lossy(&delta.0));
        assert_gives(base, &delta.0, target);
        assert_eq!(apply_delta(b"another base", &delta.0, BYTES_MAX), None);
        assert_eq!(apply_delta(base, &delta.0, target.len() - 1), None);
        assert_eq!(make_delta(b"", target), None);
        assert_eq!(make_delta(base, b""), None);
    }

    /// Deltas that another implementation made: `fossil-delta` 2.0.0 of npm, a port of Fossil's own.
    #[test]
    fn deltas_of_others_are_read() {
        let words = "0123456789abcdefghijklmnopqrstuv";
        for (base, target, delta) in [
            ("", "nothing in common", "H\nH:nothing in commonUjMaQ;"),
            ("short", "short", "5\n5:short3cQ6yn;"),
            (words, &format!("{words}WXYZ"), "_\nW@0,4:WXYZD5_PC;"),
            (
                r#"{"temperature": 21.5, "humidity": 40, "station": "north-east, roof"}"#,
                r#"{"temperature": 21.6, "humidity": 40, "station": "north-east, roof"}"#,
                "14\nJ@0,1:6l@K,39vtZF;",
            ),
            (
                r#"[{"id":1,"name":"Zoë","value":10},{"id":2,"name":"Ana","value":20},{"id":3,"name":"Léo","value":30}]"#,
                r#"[{"id":3,"name":"Léo","value":30},{"id":1,"name":"Zoë","value":10},{"id":2,"name":"Ana","value":21}]"#,
                "1b\n1:[X@14,1:,10@1,3:1}]2LwQoi;",
            ),
        ] {
            assert_gives(base.as_bytes(), delta.as_bytes(), target.as_bytes());
        }
    }

    #[test]
    fn a_text_delta_cuts_between_characters() {
        let same = "0123456789abcdefghijklmnopqrstuv";
        for (old, new) in [
            // Their first bytes are equal, so a copy would end within the character.
            ("é", "è"),
            ("€", "₭"),
            ("😀", "😁"),
            // Their last bytes are equal.
            ("é", "ĩ"),
            ("😀", "🨀"),
        ] {
            let text = |middle| format!("[{same}{middle}{same}]");
            let (base, target) = (text(old), text(new));
            let bytes = make_delta(base.as_bytes(), target.as_bytes()).expect("much stayed");
            assert!(std::str::from_utf8(&bytes.0).is_err(), "{old} {new}");
            let delta = make_text_delta(&base, &target).expect("much stayed");
            assert!(delta.contains(&format!("{}:{new}", new.len())), "{delta}");
            assert_round_trip(&base, &target);
        }
    }

    #[test]
    fn what_is_no_delta_is_refused() {
        for delta in [
            "",
            "5",
            "5\n",
            "5\n5@0",
            "5\n5@0,",
            "5\n9:abc",
            "~~~~~~~~~~~~\n",
            "0\n1;",
            "0\n0;0",
            "1\n1@~~~~~~~~~~,0;",
            // The sum of the counts is above 64 bits.
            "5\n5@0,F~~~~~~~~~@0,0;",
        ] {
            assert_eq!(
                apply_delta(b"hello world", delta.as_bytes(), usize::MAX),
                None,
                "{delta}"
            );
        }
        assert_gives(b"hello", b"0\n0;", b"");
    }

    #[test]
    fn a_delta_is_whole_or_refused() {
        let base = "x".repeat(40);
        let target = format!("{base}yz");
        let delta = make_text_delta(&base, &target).expect("smaller");
        for length in 0..delta.len() {
            let cut = &delta.as_bytes()[..length];
            assert_eq!(
                apply_delta(base.as_bytes(), cut, BYTES_MAX),
                None,
                "{length}"
            );
        }
        let other = "y".repeat(40);
        for base in [&base[..39], &other] {
            assert_eq!(
                apply_delta(base.as_bytes(), delta.as_bytes(), BYTES_MAX),
                None
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_delta_gives_its_target(
            base in proptest::collection::vec(0_u8..4, 0..600),
            edits in proptest::collection::vec((any::<u16>(), 0_u8..4, 0_usize..40), 0..8),
        ) {
            let mut target = base.clone();
            for (at, byte, count) in edits {
                let at = usize::from(at) % (target.len() + 1);
                if byte == 0 {
                    target.drain(at..(at + count).min(target.len()));
                } else {
                    target.splice(at..at, std::iter::repeat_n(byte, count));
                }
            }
            if let Some(delta) = make_delta(&base, &target) {
                prop_assert!(delta.0.len() < target.len());
                assert_gives(&base, &delta.0, &target);
            }
        }

        #[test]
        fn every_text_delta_gives_its_target(
            base in "[abéè€₭😀😁]{0,200}",
            edits in proptest::collection::vec((any::<Index>(), 0_usize..9, "[abéè€₭😀😁]{0,9}"), 0..6),
        ) {
            let mut target: Vec<char> = base.chars().collect();
            for (at, removed, inserted) in edits {
                let at = at.index(target.len() + 1);
                let end = (at + removed).min(target.len());
                target.splice(at..end, inserted.chars());
            }
            assert_round_trip(&base, &String::from_iter(target));
        }

        /// Documents as applications publish them: the same keys, some values changed.
        #[test]
        fn similar_documents_have_small_deltas(
            rows in proptest::collection::vec(("[a-zéü€ ]{1,12}", any::<u32>()), 20..60),
            changes in proptest::collection::vec((any::<Index>(), any::<u32>()), 1..4),
        ) {
            let document = |rows: &[(String, u32)]| {
                let rows = rows.iter().enumerate();
                let rows: Vec<_> = rows.map(|(row, (name, value))| {
                    serde_json::json!({"row": row, "name": name, "value": value})
                }).collect();
                serde_json::to_string(&rows).expect("JSON")
            };
            let base = document(&rows);
            let mut rows = rows;
            for (row, value) in changes {
                let row = row.index(rows.len());
                rows[row].1 = value;
            }
            let target = document(&rows);
            assert_round_trip(&base, &target);
            let delta = make_text_delta(&base, &target).expect("most stayed");
            prop_assert!(delta.len() < target.len() / 2, "{delta}");
        }

        #[test]
        fn no_bytes_break_the_reader(base: Vec<u8>, delta: Vec<u8>) {
            let _ = apply_delta(&base, &delta, usize::MAX);
        }

        /// Commands in the right form, with any numbers.
        #[test]
        fn no_commands_break_the_reader(
            base in "[ab]{0,40}",
            delta in "[0-9A-Z_a-z~]{1,11}\n([0-9~]{1,11}(@[0-9~]{1,11},|:[ab]{0,3}|;)){0,6}",
        ) {
            if let Some(target) = apply_delta(base.as_bytes(), delta.as_bytes(), 1_000) {
                prop_assert!(target.len() <= 1_000);
            }
        }

        /// A delta with a byte changed is refused, or made into no more than the limit.
        #[test]
        fn changed_deltas_keep_the_limit(
            base in "[ab]{20,99}",
            tail in "[ab]{1,5}",
            at: Index,
            byte: u8,
        ) {
            let target = format!("{base}{tail}");
            if let Some(delta) = make_delta(base.as_bytes(), target.as_bytes()) {
                let mut delta = delta.0;
                let at = at.index(delta.len());
                delta[at] = byte;
                let made = apply_delta(base.as_bytes(), &delta, target.len());
                prop_assert!(made.is_none_or(|made| made.len() <= target.len()));
            }
        }
    }
}
