//! `publish`: one publication in one channel.

use super::super::Control;
use super::fault::Fault;
use super::method::{Command, Method, Request, Scope};
use super::publication::{Publication, publication_request};
use super::reading::{Unread, read};
use super::reply::Reply;
use super::sending::Sending;
use crate::control::error::Refusal;
use std::borrow::Cow;

publication_request! {
    /// The request, borrowed from its bytes.
    Publish<'a> {
        #[serde(borrow)]
        channel: Cow<'a, str>,
    }
}

impl<'a> Publish<'a> {
    /// What is to be published, and where.
    pub(in super::super) fn into_publication(
        mut self,
    ) -> (Cow<'a, str>, Result<Publication, Fault>) {
        let publication = self.fields().try_into();
        (self.channel, publication)
    }

    /// Sends it.
    pub(super) fn send(self, sending: &mut Sending<'_, 'a>) {
        match self.into_publication() {
            (channel, Ok(publication)) => sending.send(channel, &publication),
            (channel, Err(fault)) => sending.refuse(channel, fault),
        }
    }
}

impl<'a> Request<'a> for Publish<'a> {
    const FORM: &'static str =
        r#"send {"channel": "name", "data": any JSON}, or "b64data": "base64" instead of "data""#;

    fn scope(&self) -> Scope<'_> {
        Scope::channel(&self.channel)
    }

    async fn answer(self, control: &Control) -> Reply {
        let mut sending = Sending::new(control);
        self.send(&mut sending);
        let mut replies = sending.replies().await;
        replies.pop().unwrap_or_else(|| Err(Fault::unanswered()))
    }
}

/// A body that publishes nothing.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Unusable {
    /// It is no request.
    Malformed(Refusal),
    /// It is a request with something in it that cannot be.
    Fault(Fault),
}

/// What a body wants published, and where: for fuzz targets and tests.
pub(in super::super) fn parse(body: &[u8]) -> Result<(Cow<'_, str>, Publication), Unusable> {
    let request = read(body, Publish::FORM, Method::Publish).map_err(|unread| match unread {
        Unread::Malformed(refusal) => Unusable::Malformed(refusal),
        Unread::Incomplete(fault) => Unusable::Fault(fault),
    })?;
    let Command::Publish(request) = request else {
        unreachable!("read as a publication");
    };
    let (channel, publication) = request.into_publication();
    publication
        .map(|publication| (channel, publication))
        .map_err(Unusable::Fault)
}

#[cfg(test)]
mod tests {
    use super::super::debugging;
    use super::super::publication::{KEY_BYTES_MAX, TAGS_MAX};
    use super::*;
    use myriad_shard::{Payload, PublishOptions};

    fn refusal(body: &str) -> String {
        let refusal = parse(body.as_bytes()).expect_err(body);
        format!("{refusal:?}")
    }

    fn payload(body: &str) -> Payload {
        let (_, publication) = parse(body.as_bytes()).expect(body);
        assert_eq!(publication.options, PublishOptions::default());
        publication.content.payload.clone()
    }

    #[test]
    fn raw_clients_get_the_content_of_strings_and_other_json_as_it_was_sent() {
        for (data, text) in [
            (r#""plain""#, "plain"),
            (
                r#""a \"quote\" \u00e9 \ud83d\ude00""#,
                "a \"quote\" \u{e9} \u{1f600}",
            ),
            (r#""""#, ""),
            ("null", "null"),
            ("1.50", "1.50"),
            ("{\"b\":1,  \"a\":[ ]}", "{\"b\":1,  \"a\":[ ]}"),
        ] {
            let body = format!(r#"{{"channel": "c", "data": {data}}}"#);
            let payload = payload(&body);
            assert_eq!(payload, Payload::Json(data.into()));
            assert_eq!(payload.raw(), text.as_bytes(), "{data}");
        }
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for encoded in ["AP8=", "AP8"] {
            let body = format!(r#"{{"b64data": "{encoded}", "channel": "c"}}"#);
            assert_eq!(payload(&body), Payload::Binary([0, 255].into()));
        }
        assert!(refusal(r#"{"channel": "c", "b64data": "*"}"#).contains("not standard base64"));
    }

    #[test]
    fn escaped_channel_names_are_read() {
        let (channel, _) = parse(br#"{"channel": "a\u0062", "data": 1}"#).unwrap();
        assert_eq!(channel, "ab");
    }

    #[test]
    fn wishes_and_tags_are_read_within_bounds() {
        let body = r#"{"channel": "c", "data": 1, "tags": {"b": "2", "a": "\u00e9"},
            "idempotency_key": "k", "skip_history": true, "delta": true, "version": 7, "version_epoch": "e"}"#;
        let (_, Publication { content, options }) = parse(body.as_bytes()).unwrap();
        let tags = [("a".into(), "é".into()), ("b".into(), "2".into())];
        assert_eq!(*content.tags, tags);
        assert_eq!(
            options,
            PublishOptions {
                idempotency_key: Some("k".into()),
                delta: true,
                skip_history: true,
                version: 7,
                version_epoch: "e".into(),
            }
        );
        let key = "k".repeat(KEY_BYTES_MAX + 1);
        let body = format!(r#"{{"channel": "c", "data": 1, "idempotency_key": "{key}"}}"#);
        assert!(refusal(&body).contains("256 bytes; send at most 255"));
        let tags: Vec<_> = (0..=TAGS_MAX).map(|n| format!("\"{n}\": \"\"")).collect();
        let tags = tags.join(",");
        let body = format!(r#"{{"channel": "c", "data": 1, "tags": {{{tags}}}}}"#);
        assert!(refusal(&body).contains("65 tags; send at most 64"));
        let body = r#"{"channel": "c", "data": 1, "tags": {"a": 1}}"#;
        assert!(refusal(body).contains("tags"));
    }

    #[test]
    fn data_is_nested_to_a_depth() {
        let body = |depth| {
            let data = "[".repeat(depth) + &"]".repeat(depth);
            format!(r#"{{"channel": "c", "data": {data}}}"#)
        };
        assert!(parse(body(128).as_bytes()).is_ok());
        assert!(refusal(&body(129)).contains("nested deeper than 128"));
    }

    #[test]
    fn faults_name_the_field_and_the_place() {
        for (body, parts) in [
            ("", &["the body is empty"][..]),
            ("{", &["line 1 column 1"]),
            ("{\"channel\": \"c\",\n \"data\": }", &["line 2"]),
            (
                r#"{"channel": 5, "data": 1}"#,
                &["field \\\"channel\\\"", "integer `5`", "line 1 column 13"],
            ),
            (
                r#"{"channel": "c", "data": 1, "data": 2}"#,
                &["duplicate field `data`"],
            ),
            (r#"{"channel": "c", "data": 1} x"#, &["trailing characters"]),
            ("channel=c&data=1", &["expected value"]),
            ("[]", &["the body is a list"]),
            (r#"["c", 1]"#, &["the body is a list"]),
        ] {
            let refusal = refusal(body);
            for part in parts {
                assert!(refusal.contains(part), "{body}: {refusal}");
            }
            assert!(refusal.contains("send {"), "{body}: {refusal}");
        }
        let refusal = format!("{:?}", parse(b"{\"channel\": \"\xff\"}").unwrap_err());
        assert!(refusal.contains("not UTF-8 at byte 13"), "{refusal}");
    }

    #[test]
    fn what_a_request_lacks_is_an_error_of_its_own() {
        for (body, words) in [
            (r#"{"data": 1}"#, "missing field `channel`"),
            (r#"{"channel": null, "data": 1}"#, "field `channel` is null"),
            (r#"{"channel": "c"}"#, "is missing"),
            (r#"{"channel": "c", "b64data": null}"#, "is missing"),
            (r#"{"channel": "c", "data": "\ud800"}"#, "not valid Unicode"),
        ] {
            let Err(Unusable::Fault(fault)) = parse(body.as_bytes()) else {
                panic!("{body}");
            };
            assert_eq!(fault.code.number(), 107);
            assert!(fault.detail.contains(words), "{fault:?}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored_unless_somebody_looks_for_mistakes() {
        let body = r#"{"channel": "c", "data": {"date": 2}, "date": 1, "data_b64": {}}"#;
        assert_eq!(payload(body), Payload::Json(r#"{"date": 2}"#.into()));
        let refusal = debugging::explained(|| refusal(body));
        assert!(refusal.contains("unknown field `date`"), "{refusal}");
        let known = r#"{"channel": "c", "data": {"date": 2}, "tags": {"date": "1"}}"#;
        assert!(debugging::explained(|| parse(known.as_bytes()).is_ok()));
    }

    #[test]
    fn base64_stands_over_data() {
        let body = r#"{"channel": "c", "data": {}, "b64data": "AA=="}"#;
        assert_eq!(payload(body), Payload::Binary([0].into()));
    }

    #[test]
    fn null_is_as_good_as_nothing_but_for_data() {
        let body = r#"{"channel": "c", "data": null, "tags": null, "idempotency_key": null, "skip_history": null,
            "delta": null, "version": null, "version_epoch": null, "b64data": null}"#;
        assert_eq!(payload(body), Payload::Json("null".into()));
    }
}
