//! Properties of heads and handshakes.

use super::spread;
use crate::handshake::{
    Agreed, DEFLATE_OFFER, Key, check_response, check_response_to_offer, check_upgrade,
    write_request,
};
use crate::http::{
    BodyLength, HEADERS_MAX, HeadError, HeadLimits, Host, OriginPattern, check_origin,
    check_request, parse_request, parse_response, query_pairs,
};

/// The most prefixes of an input that are tried.
const PREFIXES_MAX: usize = if cfg!(any(fuzzing, miri)) { 8 } else { 512 };

/// Fuzz target: any bytes as a head. The first byte chooses the limits, the rest is the input.
///
/// # Panics
/// If a property does not hold.
pub fn http_head(bytes: &[u8]) {
    let Some((setting, input)) = bytes.split_first() else {
        return;
    };
    let limits = match setting & 3 {
        0 => HeadLimits::default(),
        1 => HeadLimits {
            bytes_max: 64,
            headers_max: 2,
        },
        2 => HeadLimits {
            bytes_max: usize::MAX,
            headers_max: usize::MAX,
        },
        _ => HeadLimits {
            bytes_max: 0,
            headers_max: 0,
        },
    };
    check_prefixes(input, limits, |bytes| {
        Ok(parse_request(bytes, limits)?.map(|head| head.head_bytes()))
    });
    check_prefixes(input, limits, |bytes| {
        Ok(parse_response(bytes, limits)?.map(|head| head.head_bytes()))
    });

    if let Ok(Some(head)) = parse_request(input, limits) {
        let in_order = [
            head.method(),
            head.target(),
            head.path(),
            head.query().unwrap_or_default(),
        ];
        assert!(
            in_order
                .iter()
                .all(|part| !part.contains([' ', '\r', '\n', '\0']))
        );
        assert!(head.target().contains(head.path()) || head.path() == "/");
        assert!(head.header_lines().count() <= limits.headers_max.min(HEADERS_MAX));
        for (name, value) in head.header_lines() {
            assert_eq!(
                head.header(&name.to_ascii_uppercase()),
                head.headers(name).next()
            );
            assert!(head.headers(name).any(|candidate| candidate == value));
            assert_eq!(value, value.trim_ascii());
        }
        query_pairs(head.query().unwrap_or_default()).for_each(drop);
        if check_request(&head).is_ok() {
            let hosts = head.headers("host").filter_map(Host::parse).count();
            assert!(hosts == 1 || hosts == 0 && head.minor_version() == 0);
            let is_absolute = !head.target().starts_with('/') && head.target().contains("://");
            let names = head
                .headers("host")
                .filter_map(Host::parse)
                .map(|host| host.name());
            let target = head.target().to_ascii_lowercase();
            // An IPv6 address has several spellings.
            assert!(
                !is_absolute
                    || names.into_iter().all(|name| {
                        name.starts_with('[')
                            || target
                                .contains(name.trim_end_matches('.').to_ascii_lowercase().as_str())
                    })
            );
            assert!(BodyLength::of(&head).is_some() && !head.target().contains('#'));
        }
    }
    check_any_origin(input);
    query_pairs(&String::from_utf8_lossy(input)).for_each(drop);
}

/// A page that is listed as itself is let in, and one that is not listed only by the host it is asked of.
fn check_any_origin(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(pattern) = text.parse::<OriginPattern>() {
        assert_eq!(pattern.to_string(), text);
        let is_wild = text.contains('*');
        let verdict = check_origin([text.as_bytes()], None, std::slice::from_ref(&pattern));
        assert!(is_wild || verdict.is_ok());
    }
    let own = check_origin([input], Some(b"example.com"), &[]).is_ok();
    assert!(!own || text.to_ascii_lowercase().contains("://example.com"));
}

/// The verdict on a prefix does not change with more bytes, and does not depend on bytes after the head.
fn check_prefixes(
    input: &[u8],
    limits: HeadLimits,
    parse: impl Fn(&[u8]) -> Result<Option<usize>, HeadError>,
) {
    let whole = parse(input);
    if let Ok(Some(head_bytes)) = whole {
        assert!(head_bytes <= input.len().min(limits.bytes_max));
        assert_eq!(parse(&input[..head_bytes]), whole);
        assert_eq!(parse(&input[..head_bytes - 1]), Ok(None));
    }
    if whole == Ok(None) {
        assert!(input.len() < limits.bytes_max);
    }
    let verdict = spread(input, PREFIXES_MAX)
        .map(|end| parse(&input[..end]))
        .find(|verdict| *verdict != Ok(None));
    assert_eq!(verdict.unwrap_or(whole), whole);
}

/// Fuzz target: any bytes as either side of a handshake, and as what a client asks with.
///
/// # Panics
/// If a property does not hold.
pub fn handshake(bytes: &[u8]) {
    let limits = HeadLimits {
        bytes_max: usize::MAX,
        ..HeadLimits::default()
    };
    if let Ok(Some(head)) = parse_response(bytes, limits) {
        let accept = Key::from([0; 16]).accept();
        if check_response(&head, &accept).is_ok() {
            assert_eq!(head.status(), 101);
        }
    }
    if let Ok(Some(head)) = parse_request(bytes, limits) {
        match check_upgrade(&head) {
            Ok(upgrade) => {
                let key = head
                    .header("sec-websocket-key")
                    .and_then(Key::parse)
                    .expect("it was accepted");
                if let Some(deflate) = upgrade.deflate() {
                    let mut answer = Vec::new();
                    upgrade.write_response(None, Some(&deflate), &mut answer);
                    let answer = parse_response(&answer, limits)
                        .expect("well-formed")
                        .expect("whole");
                    let agreed = check_response_to_offer(&answer, &key.accept());
                    assert_eq!(agreed, Ok(Agreed::Deflate));
                }
                for protocol in upgrade.protocols().map(Some).chain([None]) {
                    let mut answer = Vec::new();
                    upgrade.write_response(protocol, None, &mut answer);
                    let answer = parse_response(&answer, limits)
                        .expect("well-formed")
                        .expect("whole");
                    assert_eq!(check_response(&answer, &key.accept()), Ok(()));
                    assert_eq!(
                        answer.header("sec-websocket-protocol"),
                        protocol.map(str::as_bytes)
                    );
                }
            }
            Err(refusal) => assert!((400..=505).contains(&refusal.status())),
        }
    }
    if let Some((nonce, rest)) = bytes.split_first_chunk::<16>() {
        check_our_request(&Key::from(*nonce), &String::from_utf8_lossy(rest));
    }
}

/// A request written with any strings parses as one request and is accepted.
fn check_our_request(key: &Key, text: &str) {
    let limits = HeadLimits {
        bytes_max: usize::MAX,
        ..HeadLimits::default()
    };
    let (host, rest) = text.split_once('\n').unwrap_or((text, ""));
    let (target, value) = rest.split_once('\n').unwrap_or((rest, ""));
    let mut request = Vec::new();
    let extra = [("x-any", value), DEFLATE_OFFER];
    write_request(&mut request, host, target, key, &extra);
    let head = parse_request(&request, limits)
        .expect("well-formed")
        .expect("whole");
    assert_eq!(head.head_bytes(), request.len());
    assert_eq!(head.header_lines().count(), 7);
    assert!(head.path().starts_with('/'));
    let upgrade = check_upgrade(&head).expect("what our client asks, our server accepts");
    let mut answer = Vec::new();
    let deflate = upgrade.deflate();
    assert!(
        deflate.is_some(),
        "what our client offers, our server takes"
    );
    upgrade.write_response(None, deflate.as_ref(), &mut answer);
    let answer = parse_response(&answer, limits)
        .expect("well-formed")
        .expect("whole");
    let agreed = check_response_to_offer(&answer, &key.accept());
    assert_eq!(agreed, Ok(Agreed::Deflate));
}
