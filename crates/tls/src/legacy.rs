//! A connection of TLS 1.2 behind its handshake. rustls keeps it, at 3.3 KB.

use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use crate::encoding::{Encoded, take_alert, write};
use crate::end::End;
use crate::records::PLAIN_MAX;

/// A connection of TLS 1.2.
pub struct Legacy<E> {
    connection: Box<E>,
    has_failed: bool,
    is_read_closed: bool,
    /// We have said that nothing more comes from us. rustls goes on to answer behind that, for example with a warning.
    is_write_closed: bool,
}

/// Why a connection of TLS 1.2 ends.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LegacyFailed {
    /// The peer sent what rustls refuses.
    #[error(transparent)]
    Refused(#[from] rustls::Error),
    /// A message of a handshake begins, which may not come any more, or the connection has failed before.
    #[error("a message of the handshake may not come behind it")]
    Unexpected,
}

/// What a record contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Data, or nothing for the application.
    Data,
    /// A `close_notify`: the peer sends nothing more.
    Closed,
}

impl<E: End> Legacy<E> {
    pub(crate) fn new(connection: Box<E>) -> Self {
        Self {
            connection,
            has_failed: false,
            is_read_closed: false,
            is_write_closed: false,
        }
    }

    /// Whether the peer said that nothing more comes from it.
    pub fn is_read_closed(&self) -> bool {
        self.is_read_closed
    }

    /// Opens one whole record in its place. Its data goes behind what is in `data`, answers behind what is in `answers`.
    ///
    /// # Errors
    ///
    /// The end of the connection, once `answers` have left.
    pub fn open(
        &mut self,
        record: &mut [u8],
        data: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Result<Heard, LegacyFailed> {
        if self.has_failed {
            return Err(LegacyFailed::Unexpected);
        }
        let before = answers.len();
        let result = self.take(record, data, answers);
        if result.is_err() {
            self.has_failed = true;
            take_alert(&mut *self.connection, answers);
        }
        if self.is_write_closed {
            answers.truncate(before);
        }
        self.is_read_closed |= result == Ok(Heard::Closed);
        result
    }

    fn take(
        &mut self,
        mut record: &mut [u8],
        data: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Result<Heard, LegacyFailed> {
        let mut heard = Heard::Data;
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process(record);
            let mut is_done = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(text) = traffic.next_record() {
                        data.extend_from_slice(text?.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut message) => {
                    write(answers, |room| Encoded::from(message.encode(room)));
                }
                ConnectionState::TransmitTlsData(message) => message.done(),
                ConnectionState::PeerClosed => heard = Heard::Closed,
                _ => is_done = true,
            }
            record = record.get_mut(discard..).unwrap_or_default();
            if is_done {
                // rustls waits for the rest of a message, and remembers where in this record it begins.
                let is_whole = record.is_empty() || heard == Heard::Closed;
                return if is_whole {
                    Ok(heard)
                } else {
                    Err(LegacyFailed::Unexpected)
                };
            }
        }
    }

    /// Writes `plain` behind what is in `sealed`. False if the connection cannot go on: it has failed, its keys are used up, or it is closed.
    #[must_use]
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> bool {
        !self.is_write_closed
            && plain.chunks(PLAIN_MAX).all(|part| {
                self.write(sealed, |state, sealed| match state {
                    ConnectionState::WriteTraffic(mut traffic) => {
                        write(sealed, |room| Encoded::from(traffic.encrypt(part, room)))
                    }
                    _ => false,
                })
            })
    }

    /// Writes a `close_notify`.
    pub fn close(&mut self, sealed: &mut Vec<u8>) {
        self.write(sealed, |state, sealed| match state {
            ConnectionState::WriteTraffic(mut traffic) => write(sealed, |room| {
                Encoded::from(traffic.queue_close_notify(room))
            }),
            _ => false,
        });
        self.is_write_closed = true;
    }

    fn write(
        &mut self,
        sealed: &mut Vec<u8>,
        mut last: impl FnMut(ConnectionState<'_, '_, E::Data>, &mut Vec<u8>) -> bool,
    ) -> bool {
        while !self.has_failed {
            match self.connection.process(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    write(sealed, |room| Encoded::from(message.encode(room)));
                }
                Ok(ConnectionState::TransmitTlsData(message)) => message.done(),
                Ok(ConnectionState::PeerClosed) => {}
                Ok(state) => return last(state, sealed),
                Err(_) => return false,
            }
        }
        false
    }
}
