//! Bodies of requests, within bounds.

use super::super::error::Refusal;
use super::super::stream::BODY_TIMEOUT;
use super::super::{Control, Stage};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use std::error::Error;
use std::io;
use tokio::sync::SemaphorePermit;

/// Kibibytes of request bodies that may be in memory at a time, so that many slow senders cannot fill it.
pub(super) const BODIES_KIB_MAX: usize = 64 << 10;

/// Bytes that a request may have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// Of one method.
    One,
    /// Of many commands.
    Many,
}

impl Limit {
    fn bytes(self) -> usize {
        match self {
            Self::One => 1 << 20,
            Self::Many => 8 << 20,
        }
    }

    fn refusal(self) -> Refusal {
        Refusal::too_large(format!(
            "a request of {} has at most {} bytes; send less, or send a link to the data",
            match self {
                Self::One => "one method",
                Self::Many => "many commands",
            },
            self.bytes()
        ))
    }
}

/// A body, and its share of the memory for bodies until it is dropped.
pub(super) struct Received<'c> {
    bytes: Bytes,
    _permit: SemaphorePermit<'c>,
}

impl std::ops::Deref for Received<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receives a whole body. Its time is judged where it is received.
pub(super) async fn receive(
    control: &Control,
    body: Body,
    limit: Limit,
) -> Result<Received<'_>, Refusal> {
    if control.stage() != Stage::Serving {
        return Err(Refusal::draining());
    }
    let permit = admit(control, &body, limit)?;
    Ok(Received {
        bytes: read(body, limit).await?,
        _permit: permit,
    })
}

async fn read(body: Body, limit: Limit) -> Result<Bytes, Refusal> {
    match Limited::new(body, limit.bytes()).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(limit.refusal()),
        Err(error) => Err(explain_broken(&*error)),
    }
}

/// Reads the body of a request of one method.
#[cfg(test)]
pub(in super::super) async fn read_body(body: Body) -> Result<Bytes, Refusal> {
    read(body, Limit::One).await
}

/// Room for the body: what its length says, or the most it can have.
fn admit<'c>(
    control: &'c Control,
    body: &Body,
    limit: Limit,
) -> Result<SemaphorePermit<'c>, Refusal> {
    let length = body.size_hint().exact().unwrap_or(limit.bytes() as u64);
    if length > limit.bytes() as u64 {
        return Err(limit.refusal());
    }
    let kib = u32::try_from(length.div_ceil(1024)).expect("a few mebibytes");
    control.api.body_kib.try_acquire_many(kib).map_err(|_| {
        Refusal::busy("too many publications are being received; send fewer at a time, or retry after a second")
    })
}

/// The connection's own reason is deep inside of the library's.
fn explain_broken(error: &(dyn Error + 'static)) -> Refusal {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    let Some(cause) = causes.find_map(|cause| cause.downcast_ref::<io::Error>()) else {
        return Refusal::bad_request(
            "body",
            format!("the body broke off ({error}); check that Content-Length is right"),
        );
    };
    match cause.kind() {
        io::ErrorKind::TimedOut => Refusal::timeout(format!(
            "the body did not arrive within {} s; check that Content-Length is right",
            BODY_TIMEOUT.as_secs()
        )),
        // The sentence says what to do.
        _ => Refusal::bad_request("body", cause.to_string()),
    }
}
