//! Requests of flows: their URL, method, headers and body.

use super::planning::{pattern, template};
use super::{Call, ClientRequest, FlowError, RequestText, Wrong};
use crate::config::Endpoint;
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::plan::{CallPlan, Expected, RequestPlan};
use crate::engine::flows::template::{Place, Template};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

/// Requests of a flow that are under way at once, when no other number is given, and at most.
pub(crate) const CALL_CONNECTIONS_DEFAULT: u32 = 32;
pub(super) const CALL_CONNECTIONS_MAX: u32 = 10_000;

/// The requests of callers, and whether any part of them has a stamp.
pub(super) fn call(given: &Call, accounts: &Accounts) -> Result<(CallPlan, bool), Wrong> {
    let (endpoint, path) = endpoint(&given.url)?;
    if !(1..=CALL_CONNECTIONS_MAX).contains(&given.connections) {
        return Err(("connections", FlowError::Connections(given.connections)));
    }
    let path = template("url", &path, Place::Url, accounts)?;
    let (request, has_stamp) = plan(path, &given.text, accounts)?;
    let call = CallPlan {
        endpoint,
        request,
        connections: given.connections,
    };
    Ok((call, has_stamp))
}

/// The requests that clients send of a flow.
pub(super) fn request(given: &ClientRequest, accounts: &Accounts) -> Result<RequestPlan, Wrong> {
    // As a URL, to see whether it is one.
    let is_path = given.path.starts_with('/');
    let whole = is_path.then(|| endpoint(&format!("http://127.0.0.1{}", given.path)).ok());
    let Some((_, path)) = whole.flatten() else {
        return Err(("path", FlowError::Path(given.path.clone())));
    };
    let path = template("path", &path, Place::Url, accounts)?;
    Ok(plan(path, &given.text, accounts)?.0)
}

/// Requests to this path, and whether any part of them has a stamp.
fn plan(
    path: Template,
    given: &RequestText,
    accounts: &Accounts,
) -> Result<(RequestPlan, bool), Wrong> {
    let body = given.body.as_deref();
    let body = body.map(|body| template("send", body, Place::Flow, accounts));
    let body = body.transpose()?;
    let headers = headers(&given.headers, body.is_some(), accounts)?;
    let parts = || {
        let values = headers.iter().map(|(_, value)| value);
        values.chain(&body).chain(std::iter::once(&path))
    };
    if parts().any(Template::is_binary) {
        return Err(("send", FlowError::BytesOfRequest));
    }
    let has_stamp = parts().any(Template::has_stamp);
    if let Some(status) = given.statuses.iter().find(|it| !(200..600).contains(*it)) {
        return Err(("status", FlowError::Status(*status)));
    }
    let answer = given.answer.as_deref();
    let answer = answer.map(|text| pattern("answer", text));
    let expected = Expected {
        statuses: given.statuses.clone(),
        answer: answer.transpose()?,
    };
    let request = RequestPlan {
        method: method(given.method.as_deref(), body.is_some())?,
        path,
        headers,
        body,
        expected,
    };
    Ok((request, has_stamp))
}

fn method(given: Option<&str>, has_body: bool) -> Result<Method, Wrong> {
    let default = if has_body { "POST" } else { "GET" };
    let given = given.unwrap_or(default);
    let method = Method::from_bytes(given.as_bytes()).ok();
    // What follows the answer to CONNECT is no HTTP.
    let method = method.filter(|method| *method != Method::CONNECT);
    method.ok_or_else(|| ("method", FlowError::Method(given.to_owned())))
}

/// Whether a header says how long the body is: the crowd writes it itself.
pub(in crate::config) fn is_of_length(name: &str) -> bool {
    let of_length = ["content-length", "transfer-encoding"];
    of_length.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// The headers, with the type of a body where none is given.
fn headers(
    given: &[(String, String)],
    has_body: bool,
    accounts: &Accounts,
) -> Result<Vec<(HeaderName, Template)>, Wrong> {
    let mut headers = Vec::new();
    if has_body {
        headers.push((CONTENT_TYPE, "application/json"));
    }
    for (name, value) in given {
        if is_of_length(name) {
            return Err(("headers", FlowError::LengthHeader(name.clone())));
        }
        let wrong = |_| ("headers", FlowError::Header(name.clone()));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(wrong)?;
        let wrong = |_| ("headers", FlowError::HeaderValue(name.to_string()));
        HeaderValue::from_bytes(value.as_bytes()).map_err(wrong)?;
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
    }
    let headers = headers
        .into_iter()
        .map(|(name, value)| Ok((name, template("headers", value, Place::Flow, accounts)?)));
    headers.collect()
}

/// Where requests go, and the text of their path.
fn endpoint(url: &str) -> Result<(Endpoint, String), Wrong> {
    let whole = url.split_once('#').map_or(url, |(before, _)| before);
    let host_at = whole.find("://").map_or(0, |at| at + 3);
    let path_at = whole[host_at..].find(['/', '?']);
    let path_at = path_at.map_or(whole.len(), |at| host_at + at);
    let (before, path) = whole.split_at(path_at);
    if before.contains("${") {
        return Err(("url", FlowError::Host));
    }
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    // A URL with something in place of each variable, to see whether it is one.
    let mut sample = before.to_owned();
    let mut rest = &path[..];
    while let Some((text, more)) = rest.split_once("${") {
        sample.push_str(text);
        sample.push('0');
        rest = more.split_once('}').map_or("", |(_, after)| after);
    }
    sample.push_str(rest);
    let endpoint = Endpoint::parse(&sample).map_err(|error| ("url", FlowError::Url(error)))?;
    Ok((endpoint, path))
}
