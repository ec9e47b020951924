//! Bodies of requests, within bounds.

use super::super::error::Refusal;
use super::super::stream::BODY_TIMEOUT;
use super::super::{Control, Stage};
use super::bodies::{NoMemory, Sender, Share};
use axum::body::Body;
use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use std::error::Error;
use std::io;

/// Bytes that a request may have.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Limit {
    /// Of one method.
    One,
    /// Of many commands.
    Many,
    /// Of publications for a stream.
    Stream,
    /// Of a client's commands: so many bytes.
    Commands(usize),
}

impl Limit {
    fn bytes(self) -> usize {
        match self {
            Self::One => 1 << 20,
            Self::Many | Self::Stream => 8 << 20,
            Self::Commands(bytes) => bytes,
        }
    }

    fn refusal(self) -> Refusal {
        Refusal::too_large(format!(
            "a request of {} has at most {} bytes; send less, or send a link to the data",
            match self {
                Self::One => "one method",
                Self::Many => "many commands",
                Self::Stream => "a stream",
                Self::Commands(_) => "a client",
            },
            self.bytes()
        ))
    }
}

/// A body, and its share of the memory for bodies until it is dropped.
pub(in super::super) struct Received<'c> {
    bytes: BytesMut,
    _share: Share<'c>,
}

impl std::ops::Deref for Received<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receives a whole body. Its time is judged where it is received.
pub(in super::super) async fn receive(
    control: &Control,
    body: Body,
    limit: Limit,
    sender: Sender,
) -> Result<Received<'_>, Refusal> {
    // While the server drains, requests are about those who are left. A publication that nobody is left to hear is refused by the mesh.
    if control.stage() == Stage::Stopped {
        return Err(Refusal::draining());
    }
    let mut share = control.api.bodies.begin(sender);
    let evicted = share.evicted();
    let bytes = tokio::select! {
        biased;
        () = evicted.notified() => return Err(no_memory(NoMemory::Evicted)),
        bytes = read(body, limit, |length| share.grow(length).map_err(no_memory)) => bytes?,
    };
    share.finish().map_err(no_memory)?;
    Ok(Received {
        bytes,
        _share: share,
    })
}

fn no_memory(why: NoMemory) -> Refusal {
    Refusal::busy(match why {
        NoMemory::Full => {
            "too many requests are being received; send fewer at a time, or retry after a second"
        }
        NoMemory::Evicted => {
            "the memory for this request is needed for others; send it without pauses, and fewer at a time"
        }
    })
}

/// `admit` is asked with each length that the body has come to.
async fn read(
    mut body: Body,
    limit: Limit,
    mut admit: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<BytesMut, Refusal> {
    if body.size_hint().lower() > limit.bytes() as u64 {
        return Err(limit.refusal());
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| explain_broken(&error))?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = bytes.len() + data.len();
        if length > limit.bytes() {
            return Err(limit.refusal());
        }
        admit(length)?;
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Reads the body of a request of one method.
#[cfg(test)]
pub(in super::super) async fn read_body(body: Body) -> Result<BytesMut, Refusal> {
    read(body, Limit::One, |_| Ok(())).await
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
