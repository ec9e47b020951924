//! Masking (RFC 6455, section 5.3): each byte XORed with one of four, in turn.

/// Masks or unmasks in place. `offset` is the number of payload bytes before these.
///
/// The loop handles eight bytes at a time, so that the compiler can use vector instructions. It cannot with single bytes
/// and an index modulo four.
pub fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut mask = mask;
    mask.rotate_left(offset % 4);
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(word.to_ne_bytes()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_tails_agree_with_the_definition() {
        let mask = [0x12, 0x34, 0x00, 0xff];
        for length in 0..70_u8 {
            for offset in 0..9 {
                let original: Vec<u8> =
                    (0..length).map(|index| index.wrapping_mul(7) + 3).collect();
                let expected: Vec<u8> = original
                    .iter()
                    .enumerate()
                    .map(|(index, byte)| byte ^ mask[(index + offset) % 4])
                    .collect();
                let mut masked = original.clone();
                apply_mask(&mut masked, mask, offset);
                assert_eq!(masked, expected, "length {length}, offset {offset}");
                apply_mask(&mut masked, mask, offset);
                assert_eq!(masked, original);
            }
        }
    }
}
