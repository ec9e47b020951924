//! Reads that come to the control plane. Shards serve reads; one gets here only on the control plane's own address. It is answered
//! with what is there, and never waits.

use super::super::Control;
use super::super::api::asking;
use super::super::error::Refusal;
use super::answers::{self, Failure};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use myriad_shard::{InquiryAnswer, ReadFrom, ReadRefused, StreamOffset, StreamRead, StreamWish};
use myriad_wire::http::query_pairs;
use myriad_wire::reads::etag_matches;
use std::borrow::Cow;

/// Bytes of an answer; the first publication may be larger.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Publications of an answer.
const PAGE_PUBLICATIONS_MAX: u32 = 10_000;

/// Answers with a page of a stream.
pub(super) async fn read(
    control: &Control,
    channel: &str,
    head: &Parts,
) -> Result<Response, Failure> {
    let from = wish(head.uri.query().unwrap_or_default())?;
    let deadline = Control::answers_deadline();
    let turn = asking::turn(control, deadline).await;
    let refusal =
        |fault: super::super::api::Fault| fault.refusal().unwrap_or_else(answers::unanswered);
    let _turn = turn.map_err(refusal)?;
    let answer = asking::home(control, deadline, |mesh, id| {
        mesh.read_stream(
            id,
            StreamWish {
                channel: channel.into(),
                from,
                bytes_max: PAGE_BYTES_MAX,
                publications_max: PAGE_PUBLICATIONS_MAX,
            },
        );
    });
    let InquiryAnswer::StreamRead(read) = answer.await.map_err(refusal)? else {
        return Err(answers::unanswered().into());
    };
    page(*read, from, head)
}

fn page(read: StreamRead, from: ReadFrom, head: &Parts) -> Result<Response, Failure> {
    let page = read.map_err(refused)?;
    let is_tail = from == ReadFrom::Now;
    let part = page.part();
    let etag = part.etag();
    let mut known = head.headers.get_all(header::IF_NONE_MATCH).into_iter();
    let is_known = known.any(|known| etag_matches(known.as_bytes(), &etag));
    let mut response = if is_known && !is_tail {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let body = part.body(page.publications.iter().map(|kept| &*kept.content));
        let content_type = HeaderValue::from_str(part.media_type.as_str());
        let mut response = (StatusCode::OK, body).into_response();
        if let Ok(content_type) = content_type {
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, content_type);
        }
        response
    };
    let headers = response.headers_mut();
    // Where the page ends, not where the stream does.
    let offset = page.next.stream_offset().to_string();
    headers.extend(answers::offset(&offset));
    if part.is_up_to_date {
        headers.insert("stream-up-to-date", HeaderValue::from_static("true"));
    }
    if part.is_closed {
        headers.insert("stream-closed", HeaderValue::from_static("true"));
    }
    if !is_tail {
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            headers.insert(header::ETAG, etag);
        }
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, no-cache"),
        );
    }
    Ok(response)
}

/// From where is read.
fn wish(query: &str) -> Result<ReadFrom, Refusal> {
    let mut offset: Option<Cow<'_, str>> = None;
    for pair in query_pairs(query) {
        let (name, value) =
            pair.map_err(|error| Refusal::bad_request("malformed_query", error.sentence()))?;
        match &*name {
            "offset" if offset.is_some() => return Err(bad_offset()),
            "offset" => offset = Some(value),
            "live" => {
                return Err(Refusal::new(
                    StatusCode::MISDIRECTED_REQUEST,
                    "live",
                    "no live reads are at the address of the HTTP API: ask at the one for clients",
                ));
            }
            _ => {}
        }
    }
    match offset.as_deref() {
        None | Some("-1") => Ok(ReadFrom::Start),
        Some("now") => Ok(ReadFrom::Now),
        Some(token) => StreamOffset::parse(token)
            .map(ReadFrom::After)
            .ok_or_else(bad_offset),
    }
}

fn bad_offset() -> Refusal {
    Refusal::bad_request(
        "offset",
        "the offset is not one of this stream; send -1, now, or Stream-Next-Offset of an earlier answer, once",
    )
}

fn refused(refused: ReadRefused) -> Failure {
    match refused {
        ReadRefused::NotFound => Refusal::new(
            StatusCode::NOT_FOUND,
            "stream",
            "there is no such stream; create it by PUT, or publish to its channel",
        )
        .into(),
        ReadRefused::InvalidOffset => bad_offset().into(),
        ReadRefused::Behind => Refusal::busy(
            "this node has not read the stream as far as the offset; wait as long as Retry-After says, then ask again",
        )
        .into(),
        ReadRefused::Unrecoverable(mut state) => {
            let gone = Refusal::new(
                StatusCode::GONE,
                "gone",
                "what follows the offset is no longer kept; Stream-Next-Offset is the earliest one that is",
            );
            state.tail = state.earliest;
            state.is_closed = false;
            Failure::from(gone).with_state(&state)
        }
    }
}
