//! A second, simple and slow implementation of RFC 1951 and RFC 7692, to compare inflaters with.

use crate::deflate::FINAL_BLOCKS_MAX;
use crate::ws::ProtocolError;

/// A message, and the longest distance in its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inflated {
    /// The message.
    pub bytes: Vec<u8>,
    /// The longest distance in its data, which is the window that it needs, in bytes.
    pub distance_max: usize,
}

/// Inflates the payload of a compressed message by itself, bit by bit.
///
/// # Errors
/// [`ProtocolError::InvalidDeflate`], [`ProtocolError::MessageTooBig`] or [`ProtocolError::TooManyFinalBlocks`]; where
/// several are true, any of them.
pub fn inflate_by_the_book(payload: &[u8], bytes_max: u64) -> Result<Inflated, ProtocolError> {
    let mut reading = Reading {
        data: [payload, &[0, 0, 0xff, 0xff]].concat(),
        position: 0,
        end: payload.len() * 8,
        inflated: Inflated::default(),
        bytes_max,
        stream_start: 0,
    };
    if payload.is_empty() {
        return Ok(reading.inflated);
    }
    let mut final_blocks = 0;
    while reading.position < reading.data.len() * 8 {
        let is_final = reading.bits(1)? == 1;
        match reading.bits(2)? {
            0 => reading.stored()?,
            1 => reading.fixed()?,
            2 => reading.dynamic()?,
            _ => return Err(ProtocolError::InvalidDeflate),
        }
        if is_final {
            final_blocks += 1;
            if final_blocks > FINAL_BLOCKS_MAX {
                return Err(ProtocolError::TooManyFinalBlocks);
            }
            // A new stream follows a final block.
            reading.position = reading.position.next_multiple_of(8);
            reading.stream_start = reading.inflated.bytes.len();
            if reading.position > reading.end {
                return Err(ProtocolError::InvalidDeflate);
            }
            if reading.position == reading.end {
                break;
            }
        }
    }
    Ok(reading.inflated)
}

/// A Huffman code: the symbols by length and then by value, and the number of symbols of each length.
struct Code {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

impl Code {
    /// From the lengths of its symbols' codes. An incomplete code may have one symbol at most, and only where
    /// `may_be_incomplete`.
    fn new(lengths: &[usize], may_be_incomplete: bool) -> Result<Self, ProtocolError> {
        let mut counts = [0; 16];
        for length in lengths.iter().filter(|length| **length > 0) {
            counts[*length] += 1;
        }
        let symbols = (1..16)
            .flat_map(|wanted| (0..lengths.len()).filter(move |symbol| lengths[*symbol] == wanted))
            .collect();
        let used: usize = (1..16).map(|length| counts[length] << (15 - length)).sum();
        let is_complete = used == 1 << 15;
        let is_single = used == 0 || counts[1] == 1 && counts.iter().sum::<usize>() == 1;
        if is_complete || may_be_incomplete && is_single {
            Ok(Self { counts, symbols })
        } else {
            Err(ProtocolError::InvalidDeflate)
        }
    }
}

const LENGTH_CODES: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// The order in which the lengths of the code for lengths come.
const LENGTHS_ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

struct Reading {
    data: Vec<u8>,
    /// In bits.
    position: usize,
    /// The end of the payload, in bits. No data may follow it.
    end: usize,
    inflated: Inflated,
    bytes_max: u64,
    stream_start: usize,
}

impl Reading {
    fn bits(&mut self, count: u32) -> Result<usize, ProtocolError> {
        let mut value = 0;
        for bit in 0..count {
            let byte = self.data.get(self.position / 8);
            let byte = byte.ok_or(ProtocolError::InvalidDeflate)?;
            value |= usize::from(byte >> (self.position % 8) & 1) << bit;
            self.position += 1;
        }
        Ok(value)
    }

    fn symbol(&mut self, code: &Code) -> Result<usize, ProtocolError> {
        let (mut bits, mut first, mut index) = (0, 0, 0);
        for length in 1..16 {
            bits |= self.bits(1)?;
            let count = code.counts[length];
            if bits < first + count {
                return Ok(code.symbols[index + bits - first]);
            }
            index += count;
            first = (first + count) << 1;
            bits <<= 1;
        }
        Err(ProtocolError::InvalidDeflate)
    }

    fn push(&mut self, byte: u8) -> Result<(), ProtocolError> {
        if self.position > self.end {
            return Err(ProtocolError::InvalidDeflate);
        }
        if self.inflated.bytes.len() as u64 == self.bytes_max {
            return Err(ProtocolError::MessageTooBig);
        }
        self.inflated.bytes.push(byte);
        Ok(())
    }

    fn stored(&mut self) -> Result<(), ProtocolError> {
        self.position = self.position.next_multiple_of(8);
        let length = self.bits(16)?;
        if self.bits(16)? != length ^ 0xffff {
            return Err(ProtocolError::InvalidDeflate);
        }
        for _ in 0..length {
            let byte = self.bits(8)?;
            self.push(byte.to_le_bytes()[0])?;
        }
        Ok(())
    }

    fn fixed(&mut self) -> Result<(), ProtocolError> {
        let mut lengths = [8; 288];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        self.codes(&Code::new(&lengths, false)?, &Code::new(&[5; 32], false)?)
    }

    fn dynamic(&mut self) -> Result<(), ProtocolError> {
        let literals = self.bits(5)? + 257;
        let distances = self.bits(5)? + 1;
        let described = self.bits(4)? + 4;
        if literals > 286 || distances > 30 {
            return Err(ProtocolError::InvalidDeflate);
        }
        let mut lengths = [0; 19];
        for place in &LENGTHS_ORDER[..described] {
            lengths[*place] = self.bits(3)?;
        }
        let code = Code::new(&lengths, false)?;
        let mut lengths: Vec<usize> = Vec::new();
        while lengths.len() < literals + distances {
            let (length, times) = match self.symbol(&code)? {
                16 => {
                    let last = lengths.last().ok_or(ProtocolError::InvalidDeflate)?;
                    (*last, 3 + self.bits(2)?)
                }
                17 => (0, 3 + self.bits(3)?),
                18 => (0, 11 + self.bits(7)?),
                length => (length, 1),
            };
            lengths.extend(std::iter::repeat_n(length, times));
        }
        if lengths.len() > literals + distances || lengths[256] == 0 {
            return Err(ProtocolError::InvalidDeflate);
        }
        let literal_code = Code::new(&lengths[..literals], true)?;
        let distance_code = Code::new(&lengths[literals..], true)?;
        self.codes(&literal_code, &distance_code)
    }

    fn codes(&mut self, literals: &Code, distances: &Code) -> Result<(), ProtocolError> {
        loop {
            let symbol = self.symbol(literals)?;
            match symbol {
                0..256 => self.push(symbol.to_le_bytes()[0])?,
                256 => return Ok(()),
                _ => {
                    let code = LENGTH_CODES.get(symbol - 257);
                    let (base, extra) = code.ok_or(ProtocolError::InvalidDeflate)?;
                    let length = base + self.bits(*extra)?;
                    let distance = self.distance(distances)?;
                    self.repeat(length, distance)?;
                }
            }
        }
    }

    fn distance(&mut self, code: &Code) -> Result<usize, ProtocolError> {
        Ok(match self.symbol(code)? {
            symbol @ 0..4 => symbol + 1,
            symbol @ 4..30 => {
                let extra = symbol / 2 - 1;
                let more = self.bits(u32::try_from(extra).expect("at most 13"))?;
                ((2 + symbol % 2) << extra) + 1 + more
            }
            _ => return Err(ProtocolError::InvalidDeflate),
        })
    }

    fn repeat(&mut self, length: usize, distance: usize) -> Result<(), ProtocolError> {
        let bytes = self.inflated.bytes.len();
        if distance > bytes - self.stream_start || distance > 1 << 15 {
            return Err(ProtocolError::InvalidDeflate);
        }
        self.inflated.distance_max = self.inflated.distance_max.max(distance);
        for at in bytes - distance..bytes - distance + length {
            self.push(self.inflated.bytes[at])?;
        }
        Ok(())
    }
}
