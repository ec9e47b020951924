//! Requests of flows: their URL, method, headers and body.

use super::planning::{pattern, template};
use super::{Call, FlowError, Wrong};
use crate::config::Endpoint;
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::plan::CallPlan;
use crate::engine::flows::template::{Place, Template};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

/// Requests of a flow that are under way at once, when no other number is given, and at most.
pub(crate) const CALL_CONNECTIONS_DEFAULT: u32 = 32;
pub(super) const CALL_CONNECTIONS_MAX: u32 = 10_000;

/// The requests of a flow, and whether any part of them has a stamp.
pub(super) fn call(given: &Call, accounts: &Accounts) -> Result<(CallPlan, bool), Wrong> {
    let (endpoint, path) = endpoint(&given.url)?;
    let path = template("url", &path, Place::Url, accounts)?;
    let body = given.body.as_ref();
    let body = body.map(|body| template("send", body, Place::Flow, accounts));
    let body = body.transpose()?;
    let mut headers = Vec::new();
    if body.is_some() {
        headers.push((CONTENT_TYPE, "application/json"));
    }
    for (name, value) in &given.headers {
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
    let headers: Vec<(HeaderName, Template)> = headers.collect::<Result<_, Wrong>>()?;
    let parts = || {
        let values = headers.iter().map(|(_, value)| value);
        values.chain(&body).chain(std::iter::once(&path))
    };
    if parts().any(Template::is_binary) {
        return Err(("send", FlowError::BytesOfRequest));
    }
    if !(1..=CALL_CONNECTIONS_MAX).contains(&given.connections) {
        return Err(("connections", FlowError::Connections(given.connections)));
    }
    let default = if body.is_some() { "POST" } else { "GET" };
    let method = given.method.as_deref().unwrap_or(default);
    let wrong = |_| ("method", FlowError::Method(method.to_owned()));
    let has_stamp = parts().any(Template::has_stamp);
    let answer = given.answer.as_ref();
    let call = CallPlan {
        method: Method::from_bytes(method.as_bytes()).map_err(wrong)?,
        answer: answer.map(|text| pattern("answer", text)).transpose()?,
        connections: given.connections,
        endpoint,
        path,
        headers,
        body,
    };
    Ok((call, has_stamp))
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
