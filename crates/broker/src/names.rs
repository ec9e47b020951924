//! Names of channels as subjects of NATS.
//!
//! A channel may have any name. A subject may not: spaces of all kinds, control characters, DEL, empty tokens and the wildcards `*` and
//! `>` are refused, lost, or take down every client that reads them (measured with nats-server 2.15 and async-nats 0.51). So every byte
//! is written as `=` and two hexadecimal digits, except for those that do no harm. `~` never comes out of a name: subjects of our own
//! have it.

use std::fmt::Write as _;
use thiserror::Error;

/// Of the class of channels without a namespace.
const NAMELESS: &str = "~";

/// Where a cluster's messages stand in NATS.
///
/// | subject | what |
/// | --- | --- |
/// | `PREFIX.h.CLASS.NAME` | publications of a channel with history, stored in the stream `PREFIX-CLASS` |
/// | `PREFIX.h.CLASS.~beat` | the beat of that stream |
/// | `PREFIX.h.CLASS.~3.…` | the same where a class has several streams: `PREFIX-CLASS~3` is the fourth |
/// | `PREFIX.r.CLASS.…` | what that stream republishes, for nodes that hear only some channels |
/// | `PREFIX.l.NAME` | publications that no history keeps, at most once |
/// | `PREFIX.p.NAME` | joins and leaves of a channel, at most once |
/// | `PREFIX.p.~` | the end of a round of joins |
/// | `PREFIX.c.…` | what nodes ask each other |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    prefix: Box<str>,
}

/// The channels that one log orders: those of a namespace, or a part of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// As it stands in subjects.
    subject: Box<str>,
    /// As it stands in the stream's name, which has no dots.
    stream: Box<str>,
}

/// Why a prefix cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("choose 1 to 32 of the letters a-z and A-Z, digits, - and _")]
pub struct PrefixError;

impl Class {
    /// The class of a namespace; of channels without one, if there is no name.
    #[must_use]
    pub fn of(namespace: Option<&str>) -> Self {
        let token = match namespace {
            None => NAMELESS.to_owned(),
            // One token of a subject, so that no namespace is another one's beginning.
            Some(name) => escaped(name).replace('.', "=2E"),
        };
        Self {
            subject: token.clone().into(),
            stream: token.into(),
        }
    }

    /// One part of the class of a namespace. It cannot be taken for a channel: `~` never comes out of a name.
    #[must_use]
    pub fn partition_of(namespace: Option<&str>, partition: u16) -> Self {
        let Self { subject, stream } = Self::of(namespace);
        Self {
            subject: format!("{subject}.~{partition}").into(),
            stream: format!("{stream}~{partition}").into(),
        }
    }
}

impl Subjects {
    /// Of a cluster. Clusters that share their NATS servers have different prefixes.
    ///
    /// # Errors
    /// The prefix cannot be a token of a subject and part of a stream's name.
    pub fn new(prefix: &str) -> Result<Self, PrefixError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if (1..=32).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
            let prefix = prefix.into();
            Ok(Self { prefix })
        } else {
            Err(PrefixError)
        }
    }

    /// The name of the stream of a class.
    #[must_use]
    pub fn stream(&self, class: &Class) -> String {
        format!("{}-{}", self.prefix, class.stream)
    }

    /// All subjects of a class's stream.
    #[must_use]
    pub fn stored_of(&self, class: &Class) -> String {
        format!("{}.h.{}.>", self.prefix, class.subject)
    }

    /// All subjects by which a class's stream republishes what it has stored.
    #[must_use]
    pub fn republished_of(&self, class: &Class) -> String {
        format!("{}.r.{}.>", self.prefix, class.subject)
    }

    /// The subject by which a stored message is republished; none if no message of ours is stored there.
    #[must_use]
    pub fn republished(&self, stored: &str) -> Option<String> {
        let rest = stored.strip_prefix(&*self.prefix)?.strip_prefix(".h.")?;
        Some(format!("{}.r.{rest}", self.prefix))
    }

    /// The subject of a channel with history.
    #[must_use]
    pub fn stored(&self, class: &Class, channel: &str) -> String {
        format!("{}.h.{}.{}", self.prefix, class.subject, escaped(channel))
    }

    /// The subject of a class's beat.
    #[must_use]
    pub fn beat(&self, class: &Class) -> String {
        format!("{}.h.{}.~beat", self.prefix, class.subject)
    }

    /// The subject of publications to a channel that no history keeps.
    #[must_use]
    pub fn live(&self, channel: &str) -> String {
        format!("{}.l.{}", self.prefix, escaped(channel))
    }

    /// All subjects of publications that no history keeps.
    #[must_use]
    pub fn live_of_all(&self) -> String {
        format!("{}.l.>", self.prefix)
    }

    /// The subject of joins and leaves of a channel.
    #[must_use]
    pub fn announced(&self, channel: &str) -> String {
        format!("{}.p.{}", self.prefix, escaped(channel))
    }

    /// The subject of what is about the joins and leaves of all channels.
    #[must_use]
    pub fn announced_to_all(&self) -> String {
        format!("{}.p.~", self.prefix)
    }

    /// All subjects of joins and leaves.
    #[must_use]
    pub fn announced_of_all(&self) -> String {
        format!("{}.p.>", self.prefix)
    }

    /// A subject of what nodes ask each other. `name` is made of tokens of our own.
    #[must_use]
    pub fn control(&self, name: &str) -> String {
        format!("{}.c.{name}", self.prefix)
    }

    /// The channel of a stored subject; none if it is no channel's, as the beat is not.
    #[must_use]
    pub fn channel_of_stored(&self, class: &Class, subject: &str) -> Option<String> {
        let rest = subject.strip_prefix(&*self.prefix)?.strip_prefix(".h.")?;
        unescaped(rest.strip_prefix(&*class.subject)?.strip_prefix('.')?)
    }

    /// The channel of a live subject.
    #[must_use]
    pub fn channel_of_live(&self, subject: &str) -> Option<String> {
        let rest = subject.strip_prefix(&*self.prefix)?;
        unescaped(rest.strip_prefix(".l.")?)
    }

    /// The channel of a subject of joins and leaves.
    #[must_use]
    pub fn channel_of_announced(&self, subject: &str) -> Option<String> {
        let rest = subject.strip_prefix(&*self.prefix)?;
        unescaped(rest.strip_prefix(".p.")?)
    }
}

/// Whether a byte does no harm in a subject, wherever it stands.
fn is_kept(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'_' | b':' | b'/' | b'#' | b'@' | b'+' | b',')
}

/// A name as tokens of a subject. A dot between two tokens that are not empty stays, so that prefixes of names are wildcards.
fn escaped(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut subject = String::with_capacity(bytes.len());
    let is_token = |at: Option<usize>| {
        let byte = at.and_then(|at| bytes.get(at));
        byte.is_some_and(|byte| *byte != b'.')
    };
    for (at, &byte) in bytes.iter().enumerate() {
        let divides = byte == b'.' && is_token(at.checked_sub(1)) && is_token(Some(at + 1));
        if divides || is_kept(byte) {
            subject.push(char::from(byte));
        } else {
            write!(subject, "={byte:02X}").expect("a String takes everything");
        }
    }
    subject
}

/// The name behind tokens of a subject; none if they were not made of one.
fn unescaped(subject: &str) -> Option<String> {
    let mut name = Vec::with_capacity(subject.len());
    let mut bytes = subject.bytes();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'.' => byte,
            _ if is_kept(byte) => byte,
            _ => return None,
        });
    }
    let name = String::from_utf8(name).ok()?;
    // Each name has one subject: another way to write it is somebody else's.
    (escaped(&name) == subject).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn subjects() -> Subjects {
        Subjects::new("my").unwrap()
    }

    #[test]
    fn harmless_names_stay_as_they_are() {
        for name in ["news", "chat:room-1", "a.b.c", "user#42", "a/b@c+d,e_f"] {
            assert_eq!(escaped(name), name);
        }
    }

    #[test]
    fn names_that_would_poison_a_subject_are_escaped() {
        for (name, subject) in [
            (" ", "=20"),
            ("a*b", "a=2Ab"),
            (">", "=3E"),
            ("$SYS", "=24SYS"),
            ("a..b", "a=2E=2Eb"),
            (".", "=2E"),
            (".a.", "=2Ea=2E"),
            ("a=b", "a=3Db"),
            ("~", "=7E"),
            ("\u{a0}", "=C2=A0"),
            ("\u{2028}\u{3000}\u{b}", "=E2=80=A8=E3=80=80=0B"),
            ("\u{7f}\0\r\n", "=7F=00=0D=0A"),
            ("", ""),
        ] {
            assert_eq!(escaped(name), subject, "{name:?}");
            assert_eq!(unescaped(subject).as_deref(), Some(name));
        }
    }

    #[test]
    fn what_no_name_was_made_into_is_no_name() {
        for subject in [
            "~beat", "a b", "=4", "=zz", "=41", "a..b", ".a", "é", "=FF", "=2e",
        ] {
            assert_eq!(unescaped(subject), None, "{subject}");
        }
    }

    #[test]
    fn subjects_of_one_kind_are_none_of_another() {
        let (subjects, class) = (subjects(), Class::of(Some("chat.eu")));
        assert_eq!(subjects.stream(&class), "my-chat=2Eeu");
        let part = Class::partition_of(Some("chat.eu"), 3);
        assert_eq!(subjects.stream(&part), "my-chat=2Eeu~3");
        let in_part = subjects.stored(&part, "chat.eu:a");
        assert_eq!(in_part, "my.h.chat=2Eeu.~3.chat.eu:a");
        assert_eq!(
            subjects.channel_of_stored(&part, &in_part).as_deref(),
            Some("chat.eu:a")
        );
        assert_eq!(subjects.channel_of_stored(&class, &in_part), None);
        let stored = subjects.stored(&class, "chat.eu:a b");
        assert_eq!(stored, "my.h.chat=2Eeu.chat.eu:a=20b");
        assert_eq!(
            subjects.channel_of_stored(&class, &stored).as_deref(),
            Some("chat.eu:a b")
        );
        assert_eq!(subjects.channel_of_stored(&Class::of(None), &stored), None);
        assert_eq!(subjects.channel_of_live(&stored), None);
        assert_eq!(
            subjects.channel_of_stored(&class, &subjects.beat(&class)),
            None
        );
        let live = subjects.live("a");
        assert_eq!(subjects.channel_of_live(&live).as_deref(), Some("a"));
        let announced = subjects.announced("a b");
        assert_eq!(
            subjects.channel_of_announced(&announced).as_deref(),
            Some("a b")
        );
        assert_eq!(subjects.channel_of_live(&announced), None);
    }

    #[test]
    fn a_prefix_is_one_token() {
        for prefix in ["", "a.b", "a b", "*", "é", &"a".repeat(33)] {
            assert_eq!(Subjects::new(prefix), Err(PrefixError), "{prefix:?}");
        }
    }

    proptest! {
        /// Over all of Unicode: a subject is made of bytes that do no harm, has no empty token, and leads back to its name.
        #[test]
        fn every_name_comes_back(name in "\\PC{0,40}|[\\s\\x00-\\x7f.*>~=]{0,40}|(?s:.{0,40})") {
            let subject = escaped(&name);
            prop_assert!(subject.bytes().all(|byte| is_kept(byte) || byte == b'.' || byte == b'='));
            if !name.is_empty() {
                prop_assert!(subject.split('.').all(|token| !token.is_empty()));
            }
            prop_assert!(subject.len() <= 3 * name.len());
            prop_assert_eq!(unescaped(&subject), Some(name));
        }

        /// Two names never share a subject, in any class.
        #[test]
        fn no_two_names_share_a_subject(one in "(?s:.{0,8})", other in "(?s:.{0,8})") {
            prop_assert_eq!(one == other, escaped(&one) == escaped(&other));
        }
    }
}
