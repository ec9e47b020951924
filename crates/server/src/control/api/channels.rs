//! `channels`: which channels have subscribers.

use super::super::Control;
use super::asking::{self, page_size};
use super::everywhere::{Everywhere, Merged, Results};
use super::fault::{Code, Fault};
use super::json::push_string;
use super::method::{Request, Scope};
use super::reply::{Json, Reply};
use myriad_shard::{ChannelPattern, ChannelsPage, ChannelsWish, Inquiry, InquiryAnswer};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Channels of one result.
pub(super) const CHANNELS_MAX: usize = 50_000;
/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 255;
/// Signs `*` of a pattern, and all signs that leave a choice: each makes every byte of every name cost more.
const STARS_MAX: usize = 8;
const CHOICES_MAX: usize = 64;
/// Names that a shard looks at in a turn, if each costs nothing but a comparison.
const NAMES_A_TURN: usize = 4_096;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Channels<'a> {
    #[serde(borrow, default)]
    pattern: Option<Cow<'a, str>>,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

impl<'a> Request<'a> for Channels<'a> {
    const FORM: &'static str = r#"send {}, {"pattern": "news:*"}, or for a page of channels "limit": 100 and "cursor": "text""#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, control: &Control) -> Reply {
        let is_whole = self.limit.unwrap_or_default() == 0;
        let channels_max = page_size(self.limit, CHANNELS_MAX)?;
        let (pattern, choices) = match self.pattern.as_deref().unwrap_or_default() {
            "" => (None, 0),
            pattern => compile(pattern).map(|(pattern, choices)| (Some(pattern), choices))?,
        };
        let after = self.cursor.filter(|cursor| !cursor.is_empty());
        let inquiry = Inquiry::Channels(ChannelsWish {
            pattern,
            after: after.map(Into::into),
            channels_max,
            names_a_turn: NAMES_A_TURN / (1 + choices),
        });
        let deadline = Control::answers_deadline();
        let _turn = asking::turn(control, deadline).await?;
        let answers = asking::every_shard(control, &inquiry, deadline).await?;
        let pages = answers.into_iter().map(|answer| match answer {
            InquiryAnswer::Channels(page) => Ok(page),
            other => Err(asking::defective("channels", &other)),
        });
        let pages: Vec<_> = pages.collect::<Result<_, _>>()?;
        merge(pages.into_iter(), channels_max, is_whole)
    }
}

/// Channels of a node.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    channels: BTreeMap<Cow<'a, str>, Clients>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Clients {
    num_clients: u32,
}

impl From<Page<'_>> for ChannelsPage {
    fn from(page: Page<'_>) -> Self {
        let channels = page.channels.into_iter();
        Self {
            channels: channels
                .map(|(name, clients)| ((*name).into(), clients.num_clients))
                .collect(),
            has_more: page.cursor.is_some(),
        }
    }
}

impl<'a> Everywhere<'a> for Channels<'a> {
    fn merge(&self, results: &mut Results<'_>) -> Merged {
        let is_whole = self.limit.unwrap_or_default() == 0;
        let pages: Vec<Page<'_>> = results.read();
        let pages = pages.into_iter().map(ChannelsPage::from);
        let channels_max = page_size(self.limit, CHANNELS_MAX);
        Merged::List(channels_max.and_then(|max| merge(pages, max, is_whole)))
    }
}

/// The channels of all shards or of all nodes, or the first of them. A channel among the first of all is among the first wherever it is.
fn merge(pages: impl Iterator<Item = ChannelsPage>, channels_max: usize, is_whole: bool) -> Reply {
    let (mut channels, mut has_more) = (BTreeMap::new(), false);
    for page in pages {
        has_more |= page.has_more;
        for (name, clients) in page.channels {
            *channels.entry(name).or_insert(0_u64) += u64::from(clients);
        }
    }
    has_more |= channels.len() > channels_max;
    if has_more && is_whole {
        return Err(Fault::new(
            Code::LimitExceeded,
            format!(
                "more than {channels_max} channels match; read pages by \"limit\" and \"cursor\", or send a closer \"pattern\""
            ),
        ));
    }
    let mut json = String::with_capacity(32 + 48 * channels.len());
    json.push_str(r#"{"channels":{"#);
    let mut last = None;
    for (index, (name, clients)) in channels.iter().take(channels_max).enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_string(name, &mut json);
        write!(json, r#":{{"num_clients":{clients}}}"#).expect("a String takes everything");
        last = Some(name);
    }
    json.push('}');
    if let Some(name) = last.filter(|_| has_more) {
        json.push_str(r#","cursor":"#);
        push_string(name, &mut json);
    }
    json.push('}');
    Ok(Json(json))
}

/// A pattern of names: `*` for any text, `?` for a character, `[a-z]` and `[!a-z]` for one of some, `{a,b}` for one of two texts, and
/// a `\` before a sign that stands for itself. Returns also how many signs leave a choice.
fn compile(pattern: &str) -> Result<(ChannelPattern, usize), Fault> {
    let bad = |what: &str| Fault::bad(format!("field \"pattern\" {what}"));
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(bad(&format!(
            "has {} bytes; send at most {PATTERN_BYTES_MAX}",
            pattern.len()
        )));
    }
    let mut regex = String::from("(?s)^(?:");
    let (mut braces, mut stars, mut choices) = (0, 0, 0);
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        choices += usize::from("*?[{".contains(sign));
        match sign {
            '*' => {
                stars += 1;
                regex.push_str(".*");
                // Several mean the same as one.
                signs = signs.as_str().trim_start_matches('*').chars();
            }
            '?' => regex.push('.'),
            '[' => {
                push_class(&mut signs, &mut regex).ok_or_else(|| bad("has a [ without its ]"))?
            }
            '{' => {
                braces += 1;
                regex.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                regex.push(')');
            }
            ',' if braces > 0 => regex.push('|'),
            '\\' => push_literal(signs.next().ok_or_else(|| bad("ends in a \\"))?, &mut regex),
            sign => push_literal(sign, &mut regex),
        }
    }
    if braces > 0 {
        return Err(bad("has a { without its }"));
    }
    for (count, most, what) in [
        (stars, STARS_MAX, "*"),
        (choices, CHOICES_MAX, "of the signs * ? [ {"),
    ] {
        if count > most {
            return Err(bad(&format!("has {count} {what}; send at most {most}")));
        }
    }
    regex.push_str(")$");
    let compiled = ChannelPattern::new(&regex);
    let compiled = compiled.map_err(|_| bad("is not valid, or too large; send a simpler one"))?;
    Ok((compiled, choices))
}

fn push_literal(sign: char, regex: &mut String) {
    if sign.is_ascii_punctuation() {
        regex.push('\\');
    }
    regex.push(sign);
}

/// What is behind a `[`, up to its `]`; none without one.
fn push_class(signs: &mut std::str::Chars<'_>, regex: &mut String) -> Option<()> {
    regex.push('[');
    let mut is_first = true;
    loop {
        match signs.next()? {
            ']' if !is_first => break,
            '!' | '^' if is_first => {
                regex.push('^');
                continue;
            }
            '-' => regex.push('-'),
            '\\' => push_literal(signs.next()?, regex),
            sign => push_literal(sign, regex),
        }
        is_first = false;
    }
    regex.push(']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn patterns_are_globs() {
        for (pattern, matching, others) in [
            ("news", &["news"][..], &["news:a", "old news"][..]),
            (
                "news:*",
                &["news:", "news:a/b", "news:a\nb"],
                &["news", "a:news:"],
            ),
            ("*", &["", "a", "é"], &[]),
            ("a?c", &["abc", "aéc"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "-x"]),
            ("[!a-c]x", &["dx"], &["ax"]),
            ("{a,bc}:*", &["a:1", "bc:"], &["b:1", "a,bc:"]),
            (r"a\*", &["a*"], &["ab"]),
            ("a.c$|(b)", &["a.c$|(b)"], &["abc$|(b)"]),
            ("a}b,c", &["a}b,c"], &["ab"]),
            (&*"*".repeat(255), &["", "a"], &[]),
        ] {
            let (compiled, _) = compile(pattern).expect(pattern);
            for name in matching {
                assert!(compiled.matches(name), "{pattern} {name}");
            }
            for name in others {
                assert!(!compiled.matches(name), "{pattern} {name}");
            }
        }
        for (pattern, words) in [
            ("[a", "["),
            ("{a", "{"),
            ("a\\", "ends in"),
            ("[z-a]", "not valid"),
            (&*"a".repeat(256), "256 bytes"),
            (&*"*a".repeat(9), "has 9 *; send at most 8"),
            (&*"?".repeat(65), "has 65 of the signs"),
        ] {
            let fault = compile(pattern).unwrap_err();
            assert!(fault.detail().contains(words), "{fault:?}");
        }
    }

    #[test]
    fn clients_of_several_nodes_are_added_up() {
        let request: Channels<'_> = serde_json::from_str("{}").unwrap();
        let results = [
            r#"{"channels":{"b\"":{"num_clients":1},"c":{"num_clients":2}}}"#,
            r#"{"channels":{"a":{"num_clients":3},"c":{"num_clients":4}}}"#,
        ];
        let results = results.map(|json| RawValue::from_string(json.into()).unwrap());
        let [ours, theirs] = &results;
        let mut results = Results::new("a", ours);
        results.push("b", theirs);
        let Merged::List(reply) = request.merge(&mut results) else {
            unreachable!("channels are a list");
        };
        assert_eq!(
            reply,
            Ok(Json(
                r#"{"channels":{"a":{"num_clients":3},"b\"":{"num_clients":1},"c":{"num_clients":6}}}"#
                    .into()
            ))
        );
    }

    #[test]
    fn pages_of_shards_are_merged_in_the_order_of_names() {
        let page = |channels: &[(&str, u32)], has_more| ChannelsPage {
            channels: channels
                .iter()
                .map(|(name, clients)| ((*name).into(), *clients))
                .collect(),
            has_more,
        };
        let pages = || {
            [
                page(&[("b", 1), ("a", 2)], false),
                page(&[("c", 3), ("b", 4)], true),
            ]
            .into_iter()
        };
        let Json(json) = merge(pages(), 2, false).unwrap();
        assert_eq!(
            json,
            r#"{"channels":{"a":{"num_clients":2},"b":{"num_clients":5}},"cursor":"b"}"#
        );
        assert_eq!(
            merge(pages(), 2, true).unwrap_err().code,
            Code::LimitExceeded
        );
        let Json(json) = merge([].into_iter(), 2, true).unwrap();
        assert_eq!(json, r#"{"channels":{}}"#);
    }
}
