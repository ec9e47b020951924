//! One answer under way: its head, and a body that may come in any pieces.

use super::positions::{POSITION_BYTES_MAX, Position};
use super::scan::BodyScan;
use crate::engine::plan::{HttpKind, HttpPlan, PollPosition};
use crate::engine::upgrade::{HEAD_LIMITS, oversize};
use crate::failure::Failure;
use crate::target::percent_encoded;
use myriad_wire::event_stream::EventStream;
use myriad_wire::http::{ResponseBody, ResponseHead, ResponseLength, parse_response};

/// Bytes that are kept of an answer that is an error, its head with them.
pub(crate) const SAID_BYTES_MAX: usize = 2048;

/// Headers that say how far a stream has come, and the parameters of the next request (Durable Streams, sections 5.6 and 8.1).
const DURABLE_STREAMS: [(&str, &str); 2] = [
    ("stream-next-offset", "offset"),
    ("stream-cursor", "cursor"),
];

/// An answer that is no answer to what was asked: the failure, and what the server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub failure: Failure,
    pub said: Vec<u8>,
}

impl Trouble {
    pub(super) fn invalid(said: &str) -> Self {
        Self {
            failure: Failure::AnswerInvalid,
            said: said.as_bytes().to_vec(),
        }
    }
}

/// One answer under way.
#[derive(Debug, Default)]
pub(in crate::engine) struct Exchange {
    /// The beginning of its head.
    head: Vec<u8>,
    /// What follows once the head is complete.
    pub(super) answer: Option<Answer>,
}

/// An answer whose head has been read.
#[derive(Debug)]
pub(super) struct Answer {
    pub body: ResponseBody,
    pub content: Content,
    /// The server keeps the connection for a next request, as its head says. A body that lasts until the end of the connection has
    /// no such end that anything could follow.
    pub keeps: bool,
    /// From where the next request goes on, as the head says.
    pub position: Option<Position>,
}

/// What is made of the body's bytes.
#[derive(Debug)]
pub(super) enum Content {
    /// A delivery, or nothing: the answer to a poll.
    Poll(Box<BodyScan>),
    Events(EventStream),
    /// Messages with a line feed behind each; the beginning of one.
    Lines(Vec<u8>),
    /// The answer to a request of a flow: its status, and as much of the body as is looked at.
    Whole(u16, Vec<u8>),
    /// An error: the head and the beginning of the body.
    Refusal(Failure, Vec<u8>),
}

impl Exchange {
    /// The rest of a stream whose terminal keeps nothing.
    pub(super) fn resumed(kind: HttpKind, is_chunked: bool) -> Self {
        let length = if is_chunked {
            ResponseLength::Chunked
        } else {
            ResponseLength::UntilEnd
        };
        Self {
            head: Vec::new(),
            answer: Some(Answer {
                body: ResponseBody::new(length),
                content: Content::of_success(kind, 200),
                keeps: false,
                position: None,
            }),
        }
    }

    /// Whether nothing of the answer has come.
    pub(in crate::engine) fn is_fresh(&self) -> bool {
        self.head.is_empty() && self.answer.is_none()
    }

    /// Whether a terminal may forget it: a stream that is between two messages.
    pub(super) fn is_at_rest(&self) -> bool {
        let Some(answer) = &self.answer else {
            return false;
        };
        answer.body.is_at_rest()
            && match &answer.content {
                Content::Events(events) => events.is_at_rest(),
                Content::Lines(line) => line.is_empty(),
                Content::Poll(_) | Content::Whole(..) | Content::Refusal(..) => false,
            }
    }

    /// Whether it is an error, as far as its head says.
    pub(super) fn is_refusal(&self) -> bool {
        let content = self.answer.as_ref().map(|answer| &answer.content);
        matches!(content, Some(Content::Refusal(..)))
    }

    /// Whether it comes in chunks, of which the last one ends it.
    pub(super) fn is_chunked(&self) -> bool {
        let body = self.answer.as_ref().map(|answer| &answer.body);
        matches!(body, Some(ResponseBody::Chunked(_)))
    }

    /// Whether the end of the connection is its end.
    pub(super) fn lasts_until_end(&self) -> bool {
        let body = self.answer.as_ref().map(|answer| &answer.body);
        matches!(body, Some(ResponseBody::UntilEnd))
    }

    /// The status of the answer to a request of a flow, once its head has come.
    pub(super) fn status(&self) -> Option<u16> {
        match self.answer.as_ref()?.content {
            Content::Whole(status, _) => Some(status),
            _ => None,
        }
    }

    /// Bytes that are kept of it.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let kept = self
            .answer
            .as_ref()
            .map_or(0, |answer| match &answer.content {
                Content::Poll(scan) => scan.kept_bytes(),
                Content::Events(events) => events.kept_bytes(),
                Content::Lines(bytes) | Content::Whole(_, bytes) | Content::Refusal(_, bytes) => {
                    bytes.len()
                }
            });
        self.head.len() + kept
    }

    /// Reads the head at the front of `input`, which is moved behind it. False if more of it is to come.
    pub(super) fn read_head(
        &mut self,
        input: &mut &[u8],
        plan: &HttpPlan,
    ) -> Result<bool, Trouble> {
        while !input.is_empty() {
            let before = self.head.len();
            let bytes = if before == 0 {
                *input
            } else {
                self.head.extend_from_slice(input);
                &self.head[..]
            };
            let head = match parse_response(bytes, HEAD_LIMITS) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    if before == 0 {
                        self.head.extend_from_slice(input);
                    }
                    *input = &[];
                    return Ok(false);
                }
                Err(error) => {
                    let begin = &bytes[..bytes.len().min(SAID_BYTES_MAX)];
                    return Err(match oversize(error) {
                        Some(said) => Trouble::invalid(&said),
                        None => Trouble {
                            failure: Failure::AnswerInvalid,
                            said: begin.to_vec(),
                        },
                    });
                }
            };
            let taken = head.head_bytes() - before;
            let answer = (!head.is_interim()).then(|| Answer::of(&head, bytes, plan));
            *input = &input[taken..];
            self.head = Vec::new();
            if let Some(answer) = answer {
                self.answer = Some(answer?);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Content {
    fn of_success(kind: HttpKind, status: u16) -> Self {
        match kind {
            HttpKind::Requests => Self::Whole(status, Vec::new()),
            // What it says is about the time-out.
            HttpKind::LongPoll if status == 408 => Self::Whole(status, Vec::new()),
            HttpKind::LongPoll => Self::Poll(Box::default()),
            HttpKind::EventStream => Self::Events(EventStream::default()),
            HttpKind::Lines => Self::Lines(Vec::new()),
        }
    }
}

impl Answer {
    fn of(head: &ResponseHead<'_>, bytes: &[u8], plan: &HttpPlan) -> Result<Self, Trouble> {
        let Some(length) = ResponseLength::of(head) else {
            return Err(Trouble::invalid(
                "a head that announces two lengths, or a coding other than chunked",
            ));
        };
        let status = head.status();
        let is_success = match plan.kind {
            HttpKind::LongPoll => matches!(status, 200..=299 | 304 | 408),
            // 204 tells a client of server-sent events to stay away.
            HttpKind::EventStream => status == 200,
            HttpKind::Lines => matches!(status, 200..=203),
            // The flow says which are.
            HttpKind::Requests => true,
        };
        if is_success && plan.kind == HttpKind::EventStream && !is_event_stream(head) {
            let kind = head.header("content-type").unwrap_or(b"(none)");
            let kind = String::from_utf8_lossy(kind);
            return Err(Trouble::invalid(&format!("content-type: {kind}")));
        }
        let content = if is_success {
            Content::of_success(plan.kind, status)
        } else {
            let head_bytes = &bytes[..head.head_bytes().min(SAID_BYTES_MAX)];
            Content::Refusal(Failure::Answer(status), head_bytes.to_vec())
        };
        Ok(Self {
            body: ResponseBody::new(length),
            content,
            keeps: keeps(head),
            position: match plan.kind {
                HttpKind::LongPoll => position(head, plan)?,
                // The head of a stream may name a place that its body has yet to come to.
                HttpKind::EventStream | HttpKind::Lines | HttpKind::Requests => None,
            },
        })
    }
}

fn is_event_stream(head: &ResponseHead<'_>) -> bool {
    let kind = head.header("content-type").unwrap_or_default();
    const NAME: &[u8] = b"text/event-stream";
    let is_named = kind
        .get(..NAME.len())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(NAME));
    is_named && matches!(kind.get(NAME.len()), None | Some(b';' | b' '))
}

/// Whether the connection persists behind this answer (RFC 9112, section 9.3).
fn keeps(head: &ResponseHead<'_>) -> bool {
    let has = |wanted: &str| {
        let mut lists = head.headers("connection");
        lists.any(|list| has_option(list, wanted))
    };
    // What follows 101 is another protocol (RFC 9110, section 15.2.2).
    let is_switched = head.status() == 101;
    !is_switched && !has("close") && (head.minor_version() > 0 || has("keep-alive"))
}

/// Whether a `Connection` header has this option (RFC 9110, section 7.6.1).
pub(super) fn has_option(list: &[u8], wanted: &str) -> bool {
    let mut options = list.split(|&byte| byte == b',');
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
}

/// From where the next request goes on.
fn position(head: &ResponseHead<'_>, plan: &HttpPlan) -> Result<Option<Position>, Trouble> {
    let parameter = |header: &str, parameter: &str| {
        let value = String::from_utf8_lossy(head.header(header)?);
        Some(format!("{parameter}={}", percent_encoded(&value)))
    };
    let parameters: Vec<String> = match &plan.position {
        PollPosition::Same => return Ok(None),
        PollPosition::Automatic => DURABLE_STREAMS
            .iter()
            .filter_map(|(header, name)| parameter(header, name))
            .collect(),
        PollPosition::Headers(named) => named
            .iter()
            .filter_map(|(header, name)| parameter(header, name))
            .collect(),
    };
    let position = if !parameters.is_empty() {
        Some(Position::Query(parameters.join("&").into()))
    } else if plan.position == PollPosition::Automatic {
        validators(head)
    } else {
        None
    };
    match position {
        Some(position) if position.bytes() > POSITION_BYTES_MAX => Err(Trouble::invalid(&format!(
            "a position of {} bytes; {POSITION_BYTES_MAX} are kept",
            position.bytes()
        ))),
        position => Ok(position),
    }
}

/// What a server that tells its messages apart by time and tag wants to be shown (RFC 9110, section 13.1).
fn validators(head: &ResponseHead<'_>) -> Option<Position> {
    let pairs = [
        ("last-modified", "if-modified-since"),
        ("etag", "if-none-match"),
    ];
    let mut lines = Vec::new();
    for (given, wanted) in pairs {
        if let Some(value) = head.header(given) {
            lines.extend_from_slice(wanted.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value);
            lines.extend_from_slice(b"\r\n");
        }
    }
    (!lines.is_empty()).then(|| Position::Headers(lines.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: HttpKind) -> HttpPlan {
        HttpPlan {
            kind,
            body: None,
            position: PollPosition::Automatic,
            expect_held: None,
            answer_bytes_max: 0,
        }
    }

    fn answer(text: &str, plan: &HttpPlan) -> Result<Answer, Trouble> {
        let read = |pieces: Vec<&[u8]>| {
            let mut exchange = Exchange::default();
            for piece in pieces {
                let mut input = piece;
                if exchange.read_head(&mut input, plan)? {
                    let left = input.len();
                    return Ok((exchange.answer.take().expect("it was read"), left));
                }
            }
            panic!("no whole head in {text:?}");
        };
        let whole = read(vec![text.as_bytes()]);
        for cut in 1..text.len() {
            let (front, back) = text.as_bytes().split_at(cut);
            let told = |read: &Result<(Answer, usize), Trouble>| match read {
                Ok((answer, _)) => format!("{answer:?}"),
                Err(trouble) => trouble.failure.to_string(),
            };
            assert_eq!(told(&read(vec![front, back])), told(&whole));
        }
        whole.map(|(answer, _)| answer)
    }

    #[test]
    fn a_position_of_durable_streams_comes_before_validators() {
        let poll = plan(HttpKind::LongPoll);
        let text = "HTTP/1.1 204 No Content\r\nStream-Next-Offset: 7 8\r\nETag: \"x\"\r\nStream-Cursor: c\r\n\r\n";
        let answer = answer(text, &poll).unwrap();
        let expected = Position::Query("offset=7%208&cursor=c".into());
        assert_eq!(answer.position, Some(expected));
        assert!(answer.keeps && answer.body.is_done());
    }

    #[test]
    fn validators_are_shown_to_servers_that_give_them() {
        let poll = plan(HttpKind::LongPoll);
        let text = "HTTP/1.1 200 OK\r\nEtag: 3\r\nLast-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\nContent-Length: 2\r\n\r\n";
        let lines =
            "if-modified-since: Thu, 01 Jan 1970 00:00:01 GMT\r\nif-none-match: 3\r\n".as_bytes();
        let expected = Some(Position::Headers(lines.into()));
        assert_eq!(answer(text, &poll).unwrap().position, expected);
        let same = HttpPlan {
            position: PollPosition::Same,
            ..poll
        };
        assert_eq!(answer(text, &same).unwrap().position, None);
    }

    #[test]
    fn a_position_may_come_from_any_header() {
        let poll = HttpPlan {
            position: PollPosition::Headers(vec![("x-next".to_owned(), "since".to_owned())]),
            ..plan(HttpKind::LongPoll)
        };
        let text = "HTTP/1.1 200 OK\r\nX-Next: a&b\r\nStream-Next-Offset: 7\r\n\r\n";
        let expected = Some(Position::Query("since=a%26b".into()));
        assert_eq!(answer(text, &poll).unwrap().position, expected);
        let long = format!(
            "HTTP/1.1 200 OK\r\nX-Next: {}\r\n\r\n",
            "a".repeat(POSITION_BYTES_MAX)
        );
        let trouble = answer(&long, &poll).unwrap_err();
        assert_eq!(trouble.failure, Failure::AnswerInvalid);
    }

    #[test]
    fn connections_are_kept_as_the_head_says() {
        let poll = plan(HttpKind::LongPoll);
        let kept = |line: &str, headers: &str| {
            let text = format!("{line} 200 OK\r\ncontent-length: 0\r\n{headers}\r\n");
            answer(&text, &poll).unwrap().keeps
        };
        assert!(kept("HTTP/1.1", ""));
        assert!(!kept("HTTP/1.1", "Connection: x, Close\r\n"));
        assert!(!kept("HTTP/1.0", ""));
        assert!(kept("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        let until_end = answer("HTTP/1.1 200 OK\r\n\r\n", &poll).unwrap();
        assert!(!until_end.body.is_done());
    }

    #[test]
    fn a_head_may_be_large_and_one_that_is_too_large_is_told_from_what_is_no_http() {
        let read = |headers: usize, value_bytes: usize| {
            let line = format!("x-policy: {}\r\n", "p".repeat(value_bytes));
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", line.repeat(headers));
            let (mut exchange, poll) = (Exchange::default(), plan(HttpKind::LongPoll));
            for mut piece in text.as_bytes().chunks(1000) {
                exchange.read_head(&mut piece, &poll)?;
            }
            Ok(exchange.answer.is_some())
        };
        assert_eq!(read(2, 12_000), Ok(true));
        assert_eq!(read(64, 10), Ok(true));
        let said = |read: Result<bool, Trouble>| read.unwrap_err().said;
        assert_eq!(said(read(3, 12_000)), b"a head of more than 32768 bytes");
        assert_eq!(said(read(65, 10)), b"a head of more than 64 headers");
    }

    #[test]
    fn what_is_no_answer_is_trouble() {
        let poll = plan(HttpKind::LongPoll);
        let failure = |text: &str, plan: &HttpPlan| answer(text, plan).map(|answer| answer.content);
        assert!(matches!(
            failure("HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", &poll),
            Ok(Content::Refusal(Failure::Answer(302), said)) if said.ends_with(b"Location: /x\r\n\r\n")
        ));
        assert!(failure("SSH-2.0-OpenSSH_9.2\r\n\r\n", &poll).is_err());
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(failure(both, &poll).is_err());
        let events = plan(HttpKind::EventStream);
        let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
        let trouble = failure(page, &events).unwrap_err();
        assert_eq!(trouble.said, b"content-type: text/html");
        let stream = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream;charset=utf-8\r\n\r\n";
        assert!(matches!(failure(stream, &events), Ok(Content::Events(_))));
    }
}
