//! A connection behind its handshake, whichever version it speaks.

use rustls::kernel::KernelConnection;

use crate::alert::{Alert, Fault};
use crate::end::End;
use crate::handshake::{Established, Protection};
use crate::header::NO_RECORD;
use crate::legacy::{Heard, Legacy, LegacyFailed};
use crate::records::{Content, Opened, Records};

/// Seals and opens the records of one connection. With TLS 1.3 it takes no more than its [`Records`].
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is what connections are for nearly all of their time"
)]
pub enum Channel<E: End> {
    /// TLS 1.3.
    Records(Records),
    /// TLS 1.2.
    Legacy(Box<Legacy<E>>),
}

/// Why a connection cannot go on behind its handshake.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ChannelFailed {
    /// A record breaks a rule of TLS 1.3.
    #[error(transparent)]
    Record(#[from] Fault),
    /// The same with TLS 1.2.
    #[error(transparent)]
    Legacy(#[from] LegacyFailed),
}

impl<E: End> Established<E> {
    /// The channel, and what a client of TLS 1.3 needs to keep tickets.
    ///
    /// The records are copied: those in the box are dropped in their place, which wipes them. A move would leave their keys in memory that is
    /// free from then on.
    pub fn into_channel(self: Box<Self>) -> (Channel<E>, Option<KernelConnection<E::Data>>) {
        match self.protection {
            Protection::Records {
                ref records,
                tickets,
            } => (Channel::Records(records.clone()), Some(tickets)),
            Protection::Legacy(legacy) => (Channel::Legacy(Box::new(legacy)), None),
        }
    }
}

impl<E: End> Channel<E> {
    /// Whether the peer speaks TLS 1.2.
    pub fn is_legacy(&self) -> bool {
        matches!(self, Self::Legacy(_))
    }

    /// Whether the peer said that nothing more comes from it.
    pub fn is_read_closed(&self) -> bool {
        match self {
            Self::Records(records) => records.is_read_closed(),
            Self::Legacy(legacy) => legacy.is_read_closed(),
        }
    }

    /// Opens one whole record in its place, and writes what the protocol answers behind what is in `answers`. Ranges of the contents are
    /// ranges of `record`.
    ///
    /// # Errors
    ///
    /// The end of the connection. `answers` end with the alert for the peer.
    pub fn open(
        &mut self,
        record: &mut [u8],
        answers: &mut Vec<u8>,
    ) -> Result<Content, ChannelFailed> {
        match self {
            Self::Records(records) => match records.open(record) {
                Ok(Opened::Record { content, .. }) => {
                    // While the peer does not read, an answer to each of its questions would pile up without end. Then the answer goes
                    // out before the next data, as RFC 8446, 4.6.3 wants.
                    if answers.is_empty() {
                        records.answer(answers);
                    }
                    Ok(content)
                }
                Ok(Opened::Incomplete) => Ok(Content::Nothing),
                Err(fault) => {
                    records.seal_alert(fault.alert(), answers);
                    Err(fault.into())
                }
            },
            Self::Legacy(legacy) => {
                let mut data = Vec::new();
                if legacy.open(record, &mut data, answers)? == Heard::Closed {
                    return Ok(Content::Closed);
                }
                // A record is longer than its text.
                record[..data.len()].copy_from_slice(&data);
                Ok(Content::Data(0..data.len()))
            }
        }
    }

    /// Writes an alert behind what is in `sealed`. rustls writes those of TLS 1.2 itself.
    pub fn seal_alert(&mut self, alert: Alert, sealed: &mut Vec<u8>) {
        if let Self::Records(records) = self {
            records.seal_alert(alert, sealed);
        }
    }

    /// Writes the alert about bytes that are no record behind what is in `sealed`. With TLS 1.2 rustls has the keys. So rustls gets bytes
    /// that are no record, and writes its `decode_error`.
    pub fn refuse(&mut self, fault: Fault, sealed: &mut Vec<u8>) {
        match self {
            Self::Records(records) => records.seal_alert(fault.alert(), sealed),
            Self::Legacy(legacy) => {
                // It fails, which is known already.
                let _ = legacy.open(&mut { NO_RECORD }, &mut Vec::new(), sealed);
            }
        }
    }

    /// Writes records with this plaintext behind what is in `sealed`. False if the connection cannot go on: it has failed, its keys are used
    /// up, or an alert of ours has ended it.
    #[must_use]
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> bool {
        match self {
            Self::Records(records) => {
                records.seal(plain, sealed);
                !records.is_write_closed()
            }
            Self::Legacy(legacy) => legacy.seal(plain, sealed),
        }
    }

    /// Writes a `close_notify` behind what is in `sealed`.
    pub fn close(&mut self, sealed: &mut Vec<u8>) {
        match self {
            Self::Records(records) => records.seal_alert(Alert::CLOSE_NOTIFY, sealed),
            Self::Legacy(legacy) => legacy.close(sealed),
        }
    }
}
