//! What a record costs among very many connections: with an AES key schedule (the expanded key) kept for each connection, or made anew for
//! each record. ADR 34 has the result: a kept schedule has to come from memory, and that takes longer than making one.
//!
//! ```sh
//! cargo run --release -p myriad-tls --example key_schedules -- --connections 524288    # prints one JSON object
//! ```

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use std::error::Error;
use std::time::Instant;

/// Bytes of a record: a small message.
const RECORD_BYTES: usize = 64;

/// An odd number. Its multiples modulo a power of two reach each index once. The stride is far larger than a page, so prefetchers do not
/// follow it.
const STEP: usize = 0x9E37_79B1;

fn key(bytes: &[u8]) -> Result<LessSafeKey, Unspecified> {
    Ok(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, bytes)?))
}

fn seal(key: &LessSafeKey, number: usize, record: &mut [u8]) -> Result<(), Unspecified> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    let nonce = Nonce::assume_unique_for_key(nonce);
    let _tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), record)?;
    Ok(())
}

/// Nanoseconds for one record. Each of `count` connections seals one, with a large stride between them.
fn measure(
    count: usize,
    mut seal: impl FnMut(usize, &mut [u8]) -> Result<(), Unspecified>,
) -> Result<f64, Unspecified> {
    let mut record = [0; RECORD_BYTES];
    let begun = Instant::now();
    for nth in 0..count {
        seal(nth.wrapping_mul(STEP) % count, &mut record)?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e9 / count as f64)
}

fn connections() -> Result<usize, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted: usize = match &words[..] {
        [] => 524_288,
        [flag, count] if flag == "--connections" => count.parse()?,
        _ => return Err("key_schedules [--connections COUNT]".into()),
    };
    Ok(wanted.next_power_of_two())
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = connections()?;
    let bytes: Vec<[u8; 16]> = (0..count as u128).map(u128::to_le_bytes).collect();
    let anew_ns = measure(count, |nth, record| seal(&key(&bytes[nth])?, nth, record))?;
    // A kept key of aws-lc-rs stands on the heap.
    let kept: Result<Vec<_>, _> = bytes.iter().map(|bytes| key(bytes)).collect();
    let kept = kept?;
    let kept_ns = measure(count, |nth, record| seal(&kept[nth], nth, record))?;
    println!("{{\"connections\": {count}, \"kept_ns\": {kept_ns:.0}, \"anew_ns\": {anew_ns:.0}}}");
    Ok(())
}
