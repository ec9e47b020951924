//! The names of clients.

use std::fmt;

/// Names a connected client, for ever: a UUID of version 8 (RFC 9562, section 5.8), whose bits only this server can read.
///
/// It carries where the client is (shard, index and generation of its connection's record), so that a request that names a
/// client needs no directory. The 114 bits that are not version and variant are scrambled with the process's secret: nobody
/// can guess another client's id, nor see from his own how many clients there are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub [u8; 16]);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::ClientId;

    #[test]
    fn an_id_is_written_as_a_uuid() {
        let id = ClientId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
        assert_eq!(id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
