//! Who is shown the metrics, and in which format.
//!
//! At the clients' address strangers are shown nothing: figures tell when a server is weak, and writing them takes time. The API's
//! key opens them, and so does an address of this machine, unless a proxy says that it asks for somebody else.

use super::super::Control;
use super::super::api::Method;
use super::super::error::Refusal;
use super::super::key::Caller;
use super::super::requests::Side;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use myriad_wire::http::Host;
use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

/// Headers by which a proxy says that it asks for somebody else.
const FORWARDED: [&str; 5] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
];

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Plain,
}

impl Format {
    /// The format that a request prefers; OpenMetrics where it likes both the same.
    fn of(headers: &HeaderMap) -> Self {
        let (mut open_metrics, mut plain) = (0, 0);
        let lines = headers.get_all(header::ACCEPT).into_iter();
        let ranges = lines.filter_map(|line| line.to_str().ok());
        for range in ranges.flat_map(|line| line.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let weight = weight_of(parts);
            match &*media.to_ascii_lowercase() {
                "application/openmetrics-text" => open_metrics = weight.max(open_metrics),
                "text/plain" => plain = weight.max(plain),
                _ => {}
            }
        }
        match plain > open_metrics {
            true => Self::Plain,
            false => Self::OpenMetrics,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The weight of a media range, in thousandths (RFC 9110, section 12.4.2).
fn weight_of<'a>(mut parameters: impl Iterator<Item = &'a str>) -> u32 {
    let weight = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(Ok(weight)) = weight.map(str::parse::<f32>) else {
        return 1000;
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is clamped to 0 to 1000"
    )]
    let thousandths = (weight.clamp(0.0, 1.0) * 1000.0) as u32;
    thousandths
}

/// Shows everything.
pub(crate) async fn metrics(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    check(&control, &head)?;
    let unwritten = |_: fmt::Error| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics",
            "the metrics could not be written as text; report this with the server's log",
        )
    };
    let text = control.metrics.text().map_err(unwritten)?;
    let format = Format::of(&head.headers);
    let content_type = [(header::CONTENT_TYPE, format.content_type())];
    Ok(match format {
        Format::OpenMetrics => (content_type, text).into_response(),
        Format::Plain => {
            let text = String::from_utf8_lossy(&text);
            (content_type, plain(&text).map_err(unwritten)?).into_response()
        }
    })
}

/// Whether a request may see the metrics.
fn check(control: &Control, head: &Parts) -> Result<(), Refusal> {
    let settings = control.settings.load();
    let has_own_address = !settings.hands_over;
    if has_own_address || control.shows_metrics() || is_own(head) {
        return Ok(());
    }
    let caller = Caller::of(&control.keys.load(), &head.headers, head.uri.query())?;
    let Some(caller) = caller else {
        return Err(Refusal::unauthorized(
            "metrics at the clients' address need a key of the API: send it as X-API-Key: KEY or Authorization: apikey KEY, or ask at 127.0.0.1, or set internal-listen or public-metrics",
        ));
    };
    caller.check_method(Method::Info)?;
    caller.check_server()
}

/// Whether this machine asks, for itself. A page whose name resolves to this machine does not: its name is no name of loopback.
fn is_own(head: &Parts) -> bool {
    let side = head.extensions.get::<Side>();
    let host = head.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let host = host.map(Host::parse);
    side == Some(&Side::Own)
        && host.is_none_or(|host| host.is_some_and(|host| host.is_loopback()))
        && !FORWARDED
            .iter()
            .any(|name| head.headers.contains_key(*name))
}

/// OpenMetrics in the older format. There, a counter's type names it as its samples do, and units and an end are unknown.
fn plain(text: &str) -> Result<String, fmt::Error> {
    let mut plain = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            writeln!(plain, "{line}")?;
            continue;
        };
        if let Some(told) = comment.strip_prefix("HELP ") {
            help = told.split_once(' ');
        } else if let Some(told) = comment.strip_prefix("TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap_or((told, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, about)) = help.take().filter(|(of, _)| *of == name) {
                writeln!(plain, "# HELP {name}{suffix} {about}")?;
            }
            writeln!(plain, "# TYPE {name}{suffix} {kind}")?;
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_is_preferred() {
        let format = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::ACCEPT, HeaderValue::from_static(line));
            }
            Format::of(&headers)
        };
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for lines in [
            &[][..],
            &["*/*"],
            &[prometheus],
            &["text/html, */*;q=0.8"],
            &["text/plain;q=0.3", "application/openmetrics-text"],
        ] {
            assert_eq!(format(lines), Format::OpenMetrics, "{lines:?}");
        }
        for lines in [
            &["text/plain"][..],
            &["text/plain; version=0.0.4; q=0.6, application/openmetrics-text; q=0.5"],
            &["application/openmetrics-text;q=0, Text/Plain;q=0.001"],
        ] {
            assert_eq!(format(lines), Format::Plain, "{lines:?}");
        }
    }

    #[test]
    fn counters_are_named_as_their_samples_are() {
        let text = "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total 1\n\
                    # HELP b B b.\n# TYPE b gauge\nb{c=\"d\"} 2\n# TYPE e histogram\ne_sum 1.0\n# EOF\n";
        let expected = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total 1\n\
                        # HELP b B b.\n# TYPE b gauge\nb{c=\"d\"} 2\n# TYPE e histogram\ne_sum 1.0\n";
        assert_eq!(plain(text).as_deref(), Ok(expected));
    }
}
