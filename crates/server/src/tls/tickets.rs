//! Tickets whose keys stand in a file, so that several nodes resume each other's sessions.
//!
//! A ticket is the key's name, a nonce, and the sealed session (AES-256-GCM). The form is that which RFC 5077, 4 recommends.

use super::LoadFault;
use super::pair::read;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::server::ProducesTickets;
use std::fmt;
use std::path::Path;

const FIELD: &str = "tls-ticket-keys";
const KEY_BYTES: usize = 32;
const NAME_BYTES: usize = 16;
/// More are a mistake: each failed search of a name reads all of them.
const KEYS_MAX: usize = 16;
/// Clients throw a ticket away after that long. RFC 8446, 4.6.1 allows seven days; half a day ends before most rotations do.
const LIFETIME_S: u32 = 12 * 60 * 60;

/// The keys of a file. The first makes tickets, and all of them open tickets.
pub(super) struct SharedTickets {
    keys: Vec<Key>,
}

struct Key {
    /// Made from the key, so that all nodes call it the same.
    name: [u8; NAME_BYTES],
    secret: RandomizedNonceKey,
}

impl SharedTickets {
    /// Reads a file: a line for each key, 32 bytes in base64, the newest first. Empty lines and those that begin with `#` are none.
    pub(super) fn read(path: &Path) -> Result<Self, LoadFault> {
        let fault = |advice: String| LoadFault::new(FIELD, path, advice);
        let bytes = read(FIELD, path)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(|(number, line)| {
            Key::parse(line).ok_or_else(|| {
                fault(format!(
                    "line {number} is no key: write 32 random bytes in base64 (openssl rand -base64 32)"
                ))
            })
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        match keys.len() {
            0 => Err(fault(
                "has no key: write openssl rand -base64 32 to it".into(),
            )),
            count if count > KEYS_MAX => Err(fault(format!(
                "has {count} keys; keep the newest {KEYS_MAX} at most"
            ))),
            _ => Ok(Self { keys }),
        }
    }
}

impl Key {
    fn parse(line: &str) -> Option<Self> {
        let bytes = STANDARD.decode(line).ok()?;
        let secret: [u8; KEY_BYTES] = bytes.try_into().ok()?;
        let mut name = [0; NAME_BYTES];
        let of = digest(
            &SHA256,
            &[b"myriad ticket key".as_slice(), &secret].concat(),
        );
        name.copy_from_slice(&of.as_ref()[..NAME_BYTES]);
        Some(Self {
            name,
            secret: RandomizedNonceKey::new(&AES_256_GCM, &secret).ok()?,
        })
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.first()?;
        let mut sealed = plain.to_vec();
        let nonce = key
            .secret
            .seal_in_place_append_tag(Aad::from(key.name), &mut sealed)
            .ok()?;
        Some([&key.name[..], nonce.as_ref(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        // A name is no secret: it stands in the ticket.
        let key = self.keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = sealed.to_vec();
        let plain = key
            .secret
            .open_in_place(nonce, Aad::from(key.name), &mut bytes);
        let length = plain.ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

impl fmt::Debug for SharedTickets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No keys.
        write!(formatter, "SharedTickets({} keys)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lines: &[[u8; KEY_BYTES]]) -> SharedTickets {
        let keys = lines.iter().map(|key| Key::parse(&STANDARD.encode(key)));
        SharedTickets {
            keys: keys.collect::<Option<_>>().expect("keys"),
        }
    }

    #[test]
    fn nodes_with_one_file_open_each_others_tickets_also_while_keys_change() {
        let (old, new) = ([1; KEY_BYTES], [2; KEY_BYTES]);
        let before = keys(&[old]);
        let after = keys(&[new, old]);
        let ticket = before.encrypt(b"session").expect("a ticket");
        assert_eq!(after.decrypt(&ticket).expect("a session"), b"session");
        let ticket = after.encrypt(b"another").expect("a ticket");
        assert_eq!(before.decrypt(&ticket), None, "it does not know the key");
        assert_eq!(
            keys(&[old, new]).decrypt(&ticket).expect("a session"),
            b"another"
        );
        assert_ne!(after.encrypt(b"x"), after.encrypt(b"x"), "a nonce each");
    }

    #[test]
    fn nothing_else_opens() {
        let keys = keys(&[[7; KEY_BYTES]]);
        let ticket = keys.encrypt(b"session").expect("a ticket");
        for length in 0..ticket.len() {
            assert_eq!(keys.decrypt(&ticket[..length]), None, "{length} bytes");
        }
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(keys.decrypt(&changed), None, "byte {place}");
        }
        let longer = [&ticket[..], b"x"].concat();
        assert_eq!(keys.decrypt(&longer), None);
    }

    #[test]
    fn a_file_that_is_none_says_what_to_write() {
        let path = std::env::temp_dir().join(format!("myriad-tickets-{}", std::process::id()));
        let key = STANDARD.encode([7; KEY_BYTES]);
        let read = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            SharedTickets::read(&path).map(|keys| keys.keys.len())
        };
        assert_eq!(read(&format!("# newest\n{key}\n\n {key} \n")), Ok(2));
        for (text, said) in [
            (String::new(), "has no key"),
            ("# none\n".into(), "openssl rand -base64 32"),
            (format!("{key}\nshort\n"), "line 2 is no key"),
            (STANDARD.encode([7; 48]), "line 1 is no key"),
            (format!("{key}\n").repeat(17), "has 17 keys"),
        ] {
            let fault = read(&text).expect_err(&text);
            assert!(fault.to_string().contains(said), "{fault}");
            assert!(!fault.to_string().contains(&key), "no key in it: {fault}");
        }
        std::fs::remove_file(&path).expect("a file");
    }
}
