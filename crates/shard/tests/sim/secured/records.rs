//! A client's records, written from RFC 8446, section 5, and not with the code of the server. It counts on its own: a record that the
//! server sealed twice, left out, or sealed with another key does not open.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, HKDF_SHA384, Prk};
use rustls::CipherSuite;

/// Bytes of a record's header.
pub(crate) const HEADER: usize = 5;
/// Text of a record, at most.
pub(crate) const TEXT_MAX: usize = 1 << 14;

/// The types of a record's contents.
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

/// The bytes of the record at the start of `bytes`, with its header. None if it has not come whole.
pub(crate) fn whole(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low] = bytes.first_chunk::<HEADER>()?;
    let whole = HEADER + usize::from(u16::from_be_bytes([high, low]));
    (bytes.len() >= whole).then_some(whole)
}

/// What protects one direction.
pub(crate) struct Half {
    aead: &'static Algorithm,
    hash: hkdf::Algorithm,
    secret: Vec<u8>,
    key: LessSafeKey,
    nonce: Vec<u8>,
    sequence: u64,
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// `HKDF-Expand-Label` without a context (section 7.1).
fn expand(hash: hkdf::Algorithm, secret: &[u8], label: &str, length: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let mut info = Vec::new();
    info.extend(u16::try_from(length).expect("a short key").to_be_bytes());
    info.push(u8::try_from(label.len()).expect("a short label"));
    info.extend(label.bytes());
    info.push(0);
    let mut derived = vec![0; length];
    Prk::new_less_safe(hash, secret)
        .expand(&[&info], Length(length))
        .and_then(|expanded| expanded.fill(&mut derived))
        .expect("a short key");
    derived
}

impl Half {
    pub(crate) fn new(suite: CipherSuite, secret: Vec<u8>) -> Self {
        let (aead, hash) = match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => (&AES_128_GCM, HKDF_SHA256),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => (&AES_256_GCM, HKDF_SHA384),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => (&CHACHA20_POLY1305, HKDF_SHA256),
            other => panic!("no suite of TLS 1.3: {other:?}"),
        };
        Self::of(aead, hash, secret)
    }

    fn of(aead: &'static Algorithm, hash: hkdf::Algorithm, secret: Vec<u8>) -> Self {
        let key = expand(hash, &secret, "key", aead.key_len());
        let key = UnboundKey::new(aead, &key).expect("its length");
        Self {
            aead,
            hash,
            key: LessSafeKey::new(key),
            nonce: expand(hash, &secret, "iv", 12),
            secret,
            sequence: 0,
        }
    }

    /// The next key (section 7.2).
    pub(crate) fn update(&mut self) {
        let secret = expand(self.hash, &self.secret, "traffic upd", self.secret.len());
        *self = Self::of(self.aead, self.hash, secret);
    }

    /// The nonce of the next record (section 5.3).
    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = <[u8; 12]>::try_from(&self.nonce[..]).expect("12 bytes");
        for (at, byte) in self.sequence.to_be_bytes().iter().enumerate() {
            nonce[4 + at] ^= byte;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// The number of the next record.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Appends a record with these contents and so many zeros behind them.
    pub(crate) fn seal(&mut self, kind: u8, text: &[u8], zeros: usize, sealed: &mut Vec<u8>) {
        let mut body = text.to_vec();
        body.push(kind);
        body.resize(body.len() + zeros, 0);
        let length = u16::try_from(body.len() + 16).expect("one record");
        let [high, low] = length.to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let nonce = self.next_nonce();
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(header), &mut body)
            .expect("a short record");
        sealed.extend(header);
        sealed.extend(body);
    }

    /// The type and the contents of a whole record. None if its tag is wrong.
    pub(crate) fn open<'a>(&mut self, record: &'a mut [u8]) -> Option<(u8, &'a [u8])> {
        let (header, body) = record.split_at_mut(HEADER);
        assert_eq!(header[0], DATA, "a record without protection");
        assert_eq!(header[1..3], [3, 3], "the version that all records say");
        let nonce = self.next_nonce();
        let text = self.key.open_in_place(nonce, Aad::from(&*header), body);
        let text = text.ok()?;
        assert!(text.len() <= TEXT_MAX + 1, "a record is too long");
        let last = text.iter().rposition(|byte| *byte != 0);
        let last = last.expect("a record has a type");
        Some((text[last], &text[..last]))
    }
}
