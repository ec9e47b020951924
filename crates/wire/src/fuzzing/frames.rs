//! Properties of the frame decoder: the result does not depend on how the bytes are cut.

use super::model::read_by_the_book;
use super::spread;
use crate::deflate::Inflater;
use crate::ws::{CloseCode, Decoder, Event, Extension, Kind, Limits, ProtocolError, Role};

/// One event, with its pieces joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A whole message.
    Message(Kind, Vec<u8>),
    /// A ping's payload.
    Ping(Vec<u8>),
    /// A pong's payload.
    Pong(Vec<u8>),
    /// A close frame.
    Close(Option<(CloseCode, String)>),
}

/// A decoder's complete result for some bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Transcript {
    /// Events in the order in which they were completed.
    pub items: Vec<Item>,
    /// The pieces of the incomplete message (its DEFLATE data if it is compressed).
    pub unfinished: Option<(Kind, Vec<u8>)>,
    /// The error, if there was one.
    pub error: Option<ProtocolError>,
}

impl Transcript {
    /// Whether two results are equal. With an error, the number of pieces before it may depend on the cuts.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        let unfinished_agrees = match (&self.unfinished, &other.unfinished) {
            _ if self.error.is_none() => self.unfinished == other.unfinished,
            (Some((kind, bytes)), Some((other_kind, other_bytes))) => {
                kind == other_kind
                    && (bytes.starts_with(other_bytes) || other_bytes.starts_with(bytes))
            }
            _ => true,
        };
        self.items == other.items && self.error == other.error && unfinished_agrees
    }

    fn take(&mut self, event: Event<'_>, limits: &Limits) -> Result<(), ProtocolError> {
        let item = match event {
            Event::Data {
                kind,
                compressed,
                bytes,
                first,
                last,
            } => {
                assert!(
                    last || !bytes.is_empty(),
                    "an empty piece comes only as the last one"
                );
                assert_eq!(
                    first,
                    self.unfinished.is_none(),
                    "the first piece, and no other, is marked so"
                );
                let (begun_as, message) = self.unfinished.get_or_insert_with(|| (kind, Vec::new()));
                assert_eq!(*begun_as, kind, "a message keeps its kind");
                message.extend_from_slice(bytes);
                if !last {
                    return Ok(());
                }
                let (kind, mut message) = self.unfinished.take().expect("just filled");
                if compressed {
                    let payload = std::mem::take(&mut message);
                    let bytes_max = limits.message_bytes_max;
                    Inflater::default().inflate(kind, &payload, bytes_max, &mut message)?;
                    assert!(message.len() as u64 <= bytes_max, "no more than the limit");
                }
                assert!(
                    kind == Kind::Binary || str::from_utf8(&message).is_ok(),
                    "a whole text is UTF-8"
                );
                Item::Message(kind, message)
            }
            Event::Ping(payload) => Item::Ping(payload.to_vec()),
            Event::Pong(payload) => Item::Pong(payload.to_vec()),
            Event::Close(close) => {
                Item::Close(close.map(|(code, reason)| (code, reason.to_string())))
            }
        };
        self.items.push(item);
        Ok(())
    }

    /// Maps all faults of a compressed message to one: if there are several, the steps of inflating decide which one is
    /// reported.
    fn in_general(&self) -> Self {
        let general = |error| match error {
            ProtocolError::MessageTooBig | ProtocolError::InvalidText => {
                ProtocolError::InvalidDeflate
            }
            other => other,
        };
        Self {
            error: self.error.map(general),
            ..self.clone()
        }
    }

    fn data_bytes(&self) -> usize {
        let item_bytes = |item: &Item| match item {
            Item::Message(_, bytes) | Item::Ping(bytes) | Item::Pong(bytes) => bytes.len(),
            Item::Close(close) => close.as_ref().map_or(0, |(_, reason)| 2 + reason.len()),
        };
        let unfinished = self.unfinished.as_ref().map_or(0, |(_, bytes)| bytes.len());
        self.items.iter().map(item_bytes).sum::<usize>() + unfinished
    }
}

/// How the bytes are cut.
#[derive(Clone, Debug)]
pub enum Cuts {
    /// All at once.
    None,
    /// In two pieces. The first has this many bytes.
    At(usize),
    /// Byte by byte.
    Everywhere,
    /// In pieces of these sizes, over and over; zeros count as one.
    Sizes(Vec<usize>),
}

impl Cuts {
    fn sizes(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Self::None => Box::new(std::iter::repeat(usize::MAX)),
            Self::At(first) => Box::new([*first].into_iter().chain(std::iter::repeat(usize::MAX))),
            Self::Everywhere => Box::new(std::iter::repeat(1)),
            Self::Sizes(sizes) => Box::new(sizes.iter().map(|size| (*size).max(1)).cycle()),
        }
    }
}

/// Decodes the bytes in the given pieces, and asserts the properties of every event.
///
/// It replaces the decoder by a new one whenever it is idle, as the callers do.
#[must_use]
pub fn read_frames(
    role: Role,
    extension: Extension,
    limits: &Limits,
    bytes: &[u8],
    cuts: &Cuts,
) -> Transcript {
    let mut transcript = Transcript::default();
    let mut decoder = Decoder::with_extension(role, extension);
    let mut bytes = bytes.to_vec();
    let mut rest = &mut bytes[..];
    let mut sizes = cuts.sizes();
    while !rest.is_empty() {
        let size = sizes.next().expect("sizes never end").min(rest.len());
        let (mut piece, after) = rest.split_at_mut(size);
        rest = after;
        loop {
            match decoder.next_event(limits, &mut piece) {
                Ok(Some(event)) => {
                    let closed = matches!(event, Event::Close(_));
                    if let Err(error) = transcript.take(event, limits) {
                        transcript.error = Some(error);
                        return transcript;
                    }
                    if closed {
                        assert_silent(&mut decoder, limits);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(piece.is_empty(), "an error discards the input");
                    assert_silent(&mut decoder, limits);
                    transcript.error = Some(error);
                    return transcript;
                }
            }
        }
        assert!(piece.is_empty(), "no event left means no input left");
        if decoder.is_idle() {
            assert_eq!(transcript.unfinished, None, "idle is between messages");
            decoder = Decoder::with_extension(role, extension);
        }
    }
    transcript
}

/// After its end a decoder returns no event and is not idle.
fn assert_silent(decoder: &mut Decoder, limits: &Limits) {
    let mut ping = [0x89, 0x80, 0, 0, 0, 0];
    let mut more = &mut ping[..];
    assert_eq!(decoder.next_event(limits, &mut more), Ok(None));
    assert!(more.is_empty() && !decoder.is_idle());
}

/// Maximum number of cuts in two. A short input is cut everywhere, a long one at some positions, because the work grows
/// with the square. For a fuzzer and Miri, many inputs are worth more than many cuts of one input.
const CUTS_MAX: usize = if cfg!(any(fuzzing, miri)) { 8 } else { 384 };

/// Decodes the bytes with many cuts. Asserts that all results are equal, and equal to that of the simple decoder, and
/// returns it.
///
/// # Panics
/// If a property does not hold.
pub fn check_frames(role: Role, limits: &Limits, bytes: &[u8]) -> Transcript {
    check_extended_frames(role, Extension::None, limits, bytes)
}

/// As [`check_frames`], where an extension was negotiated.
///
/// # Panics
/// If a property does not hold.
pub fn check_extended_frames(
    role: Role,
    extension: Extension,
    limits: &Limits,
    bytes: &[u8],
) -> Transcript {
    let whole = read_frames(role, extension, limits, bytes, &Cuts::None);
    assert!(
        extension == Extension::Deflate || whole.data_bytes() <= bytes.len(),
        "never more data than input"
    );
    let by_the_book = read_by_the_book(role, extension, limits, bytes);
    let agrees = match extension {
        Extension::None => whole.agrees_with(&by_the_book),
        Extension::Deflate => whole.in_general().agrees_with(&by_the_book.in_general()),
    };
    assert!(agrees, "by the book: {by_the_book:?}\ndecoded: {whole:?}");

    let cuts = spread(bytes, CUTS_MAX).filter(|at| *at > 0).map(Cuts::At);
    let sizes = [vec![2], vec![3, 1], vec![1, 7, 2, 13, 64], vec![125, 1]];
    // Miri takes a minute for 64 KiB in small pieces.
    let small_pieces = [Cuts::Everywhere]
        .into_iter()
        .chain(sizes.into_iter().map(Cuts::Sizes))
        .filter(|_| !cfg!(miri) || bytes.len() <= 1024);
    for cut in cuts.chain(small_pieces) {
        let pieces = read_frames(role, extension, limits, bytes, &cut);
        assert!(
            whole.agrees_with(&pieces),
            "cut {cut:?}: {pieces:?}\nwhole: {whole:?}"
        );
    }
    whole
}
