//! The payloads of control frames. They have at most 125 bytes, so an event owns a copy.

use super::{CONTROL_BYTES_MAX, REASON_BYTES_MAX};
use std::fmt;
use std::ops::Deref;

/// The payload of a ping or pong.
#[derive(Clone, Copy)]
pub struct Control {
    length: u8,
    bytes: [u8; CONTROL_BYTES_MAX],
}

impl Control {
    /// A copy of the payload. `None` above [`CONTROL_BYTES_MAX`].
    #[must_use]
    pub fn new(payload: &[u8]) -> Option<Self> {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self {
            length: u8::try_from(payload.len()).ok()?,
            bytes,
        })
    }
}

impl Deref for Control {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl AsRef<[u8]> for Control {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Control {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Control {}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({:?})", String::from_utf8_lossy(self))
    }
}

/// The text after the code in a close frame. Often empty.
#[derive(Clone, Copy)]
pub struct Reason {
    length: u8,
    bytes: [u8; REASON_BYTES_MAX],
}

impl Reason {
    /// A copy of the reason. `None` above [`REASON_BYTES_MAX`].
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; REASON_BYTES_MAX];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self {
            length: u8::try_from(text.len()).ok()?,
            bytes,
        })
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("made from a str only")
    }
}

impl AsRef<str> for Reason {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Reason {}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({:?})", &**self)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_up_to_their_limit_fit() {
        assert_eq!(&*Control::new(&[7; 125]).unwrap(), [7; 125]);
        assert_eq!(Control::new(&[7; 126]), None);
        assert_eq!(&*Reason::new(&"é".repeat(61)).unwrap(), "é".repeat(61));
        assert_eq!(Reason::new(&"é".repeat(62)), None);
    }

    #[test]
    fn bytes_past_the_length_do_not_count() {
        assert_eq!(Control::new(b"").unwrap().len(), 0);
        assert_ne!(Control::new(b"a"), Control::new(b"a\0"));
        assert_ne!(Reason::new("a"), Reason::new("a\0"));
    }
}
