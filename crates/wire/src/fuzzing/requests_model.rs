//! A second reader of requests, written from RFC 9110, RFC 9112 and RFC 3986 alone. It has the whole input at hand, cuts it into
//! lines, and looks at them again and again; it shares no code with the parser, and does not care for speed.

use crate::http::{HEADERS_MAX, HeadLimits};

/// What comes behind the requests that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Nothing,
    /// The body has not come to its end.
    Partial,
    /// The empty line that ends the head has not come.
    HeadWithoutEnd,
    /// A request that breaks rules, with the status of each rule that it breaks.
    Refused(Vec<u16>),
}

/// The length of chunk extensions and trailers that is accepted.
const OVERHEAD_BYTES_MAX: usize = 4096;

/// Where each accepted request ends, and what comes behind them.
pub(super) fn read_requests_by_the_book(input: &[u8], limits: HeadLimits) -> (Vec<usize>, Verdict) {
    let mut ends = Vec::new();
    let mut start = 0;
    while start < input.len() {
        let rest = &input[start..];
        match read_request(rest, limits) {
            Ok(length) => start += length,
            Err(verdict) => return (ends, verdict),
        }
        ends.push(start);
    }
    (ends, Verdict::Nothing)
}

/// The length of the request at the front.
fn read_request(rest: &[u8], limits: HeadLimits) -> Result<usize, Verdict> {
    // RFC 9112, section 2.2: empty lines in front of a request are skipped.
    let mut empty = 0;
    while rest[empty..].starts_with(b"\r\n") {
        empty += 2;
    }
    let Some(head_length) = find(&rest[empty..], b"\r\n\r\n").map(|at| empty + at + 4) else {
        return Err(Verdict::HeadWithoutEnd);
    };
    let lines = split(&rest[empty..head_length - 4], b"\r\n");
    let mut faults = Vec::new();
    if head_length > limits.bytes_max {
        faults.push(431);
    }
    if lines.len() - 1 > limits.headers_max.min(HEADERS_MAX) {
        faults.push(431);
    }
    let words = split(lines[0], b" ");
    check_line(&words, &mut faults);
    let mut headers = Vec::new();
    for line in &lines[1..] {
        match read_header(line) {
            Some(header) => headers.push(header),
            None => faults.push(400),
        }
    }
    if !faults.is_empty() {
        return Err(Verdict::Refused(faults));
    }
    let is_old = words[2] == b"HTTP/1.0";
    check_hosts(words[1], &headers, is_old, &mut faults);
    let lengths = values(&headers, "content-length");
    let codings = values(&headers, "transfer-encoding");
    let length = read_length(&lengths);
    if lengths.len() > 1 || !lengths.is_empty() && length.is_none() {
        faults.push(400);
    }
    for coding in &codings {
        if lower(coding) != "chunked" {
            faults.push(400);
            faults.push(501);
        }
    }
    if codings.len() > 1 || !codings.is_empty() && (is_old || !lengths.is_empty()) {
        faults.push(400);
    }
    let expectations = values(&headers, "expect");
    if expectations.len() > 1
        || expectations
            .iter()
            .any(|value| lower(value) != "100-continue")
    {
        faults.push(417);
    }
    if !faults.is_empty() {
        return Err(Verdict::Refused(faults));
    }
    let body = &rest[head_length..];
    let body_length = if codings.is_empty() {
        let length = length.unwrap_or(0);
        if (body.len() as u128) < length {
            return Err(Verdict::Partial);
        }
        usize::try_from(length).map_err(|_| Verdict::Partial)?
    } else {
        read_chunks(body)?
    };
    Ok(head_length + body_length)
}

/// Method, target, version (RFC 9112, section 3).
fn check_line(words: &[&[u8]], faults: &mut Vec<u16>) {
    let [method, target, version] = words else {
        // The third word of four may be a version, of HTTP or of something else.
        faults.extend([400, 505]);
        return;
    };
    if !matches!(*version, b"HTTP/1.0" | b"HTTP/1.1") {
        faults.push(400);
        if version.starts_with(b"HTTP/") {
            faults.push(505);
        }
    }
    if *method == b"CONNECT" {
        faults.push(501);
    }
    let is_text = str::from_utf8(target).is_ok_and(|text| {
        !text.is_empty() && !text.contains(|letter: char| letter <= ' ' || letter == '\u{7f}')
    });
    if !is_name(method) || !is_text || !is_target(method, &String::from_utf8_lossy(target)) {
        faults.push(400);
    }
}

/// RFC 9112, section 3.2; RFC 3986, section 3.
fn is_target(method: &[u8], target: &str) -> bool {
    if target == "*" {
        return method == b"OPTIONS";
    }
    let path_and_query = match authority_of(target) {
        Some((_, rest)) => rest,
        None if target.starts_with('/') => target,
        None => return false,
    };
    let (path, query) = path_and_query
        .split_once('?')
        .unwrap_or((path_and_query, ""));
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' {
            let digits: String = letters.by_ref().take(2).collect();
            let is_number =
                digits.len() == 2 && digits.chars().all(|digit| digit.is_ascii_hexdigit());
            if !is_number || digits == "00" {
                return false;
            }
        } else if letter.is_ascii()
            && !letter.is_ascii_alphanumeric()
            && !"-._~!$&'()*+,;=:@/[]|".contains(letter)
        {
            return false;
        }
    }
    !target.contains('#') && !query.contains(['"', '<', '>'])
}

/// The authority of a target in absolute form, and what follows it.
fn authority_of(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once(':')?;
    if !["http", "https", "ws", "wss"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return None;
    }
    let rest = rest.strip_prefix("//")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// RFC 9112, section 3.2 and 3.2.2.
fn check_hosts(target: &[u8], headers: &[(String, Vec<u8>)], is_old: bool, faults: &mut Vec<u16>) {
    let target = String::from_utf8_lossy(target);
    let hosts = values(headers, "host");
    let own = match hosts[..] {
        [] if is_old => None,
        [host] => match read_host(host) {
            Some(host) => Some(host),
            None => return faults.push(400),
        },
        _ => return faults.push(400),
    };
    let Some((authority, _)) = authority_of(&target) else {
        return;
    };
    let scheme = target.split(':').next().unwrap_or_default();
    let usual = if scheme.to_ascii_lowercase().ends_with('s') && scheme.len() != 2 {
        443
    } else {
        80
    };
    let is_same = match (read_host(authority.as_bytes()), own) {
        (Some((name, _)), None) => !name.is_empty(),
        (Some((name, port)), Some((own_name, own_port))) => {
            !name.is_empty()
                && name == own_name
                && port.unwrap_or(usual) == own_port.unwrap_or(usual)
        }
        (None, _) => false,
    };
    if !is_same {
        faults.push(400);
    }
}

/// A host in one spelling, and its port (RFC 3986, section 3.2.2 and 3.2.3).
fn read_host(value: &[u8]) -> Option<(String, Option<u16>)> {
    let text = str::from_utf8(value).ok()?;
    let (name, port) = match text.rfind(':') {
        Some(colon) if !text[colon..].contains(']') => (&text[..colon], &text[colon + 1..]),
        _ => (text, ""),
    };
    let port = match port.trim_start_matches('0') {
        _ if port.is_empty() => None,
        _ if !port.chars().all(|digit| digit.is_ascii_digit()) => return None,
        "" => Some(0),
        digits => Some(digits.parse().ok()?),
    };
    if let Some(inside) = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        if let Ok(address) = inside.parse::<std::net::Ipv6Addr>() {
            return Some((format!("[{address}]"), port));
        }
        let (version, address) = inside.strip_prefix(['v', 'V'])?.split_once('.')?;
        let is_future = !version.is_empty()
            && version.chars().all(|digit| digit.is_ascii_hexdigit())
            && !address.is_empty()
            && address
                .chars()
                .all(|letter| letter == ':' || is_host_letter(letter));
        return is_future.then(|| (name.to_ascii_lowercase(), port));
    }
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        let is_good = if letter == '%' {
            let digits: String = letters.by_ref().take(2).collect();
            digits.len() == 2 && digits.chars().all(|digit| digit.is_ascii_hexdigit())
        } else {
            is_host_letter(letter)
        };
        if !is_good {
            return None;
        }
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    Some((name.to_ascii_lowercase(), port))
}

fn is_host_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(letter)
}

/// Name and value of a header line (RFC 9112, section 5; RFC 9110, section 5.5).
fn read_header(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_value = value
        .iter()
        .all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f);
    (is_name(name) && is_value).then(|| {
        let is_space = |byte: &u8| *byte == b' ' || *byte == b'\t';
        let start = value.iter().position(|byte| !is_space(byte));
        let end = value.iter().rposition(|byte| !is_space(byte));
        let trimmed = match (start, end) {
            (Some(start), Some(end)) => &value[start..=end],
            _ => &[],
        };
        (lower(name), trimmed.to_vec())
    })
}

/// One Content-Length below 2^63 (RFC 9110, section 8.6).
fn read_length(lengths: &[&[u8]]) -> Option<u128> {
    let digits = str::from_utf8(lengths.first()?).ok()?;
    let is_number = !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit());
    let length = digits.trim_start_matches('0');
    let length = if length.is_empty() { "0" } else { length };
    is_number
        .then(|| length.parse().ok())
        .flatten()
        .filter(|length: &u128| *length < 1 << 63)
}

/// The length of a body in chunks (RFC 9112, section 7.1).
fn read_chunks(body: &[u8]) -> Result<usize, Verdict> {
    let mut text = Text {
        bytes: body,
        at: 0,
        overhead: 0,
    };
    loop {
        let size = text.size()?;
        text.extensions()?;
        text.line_end()?;
        if size == 0 {
            break;
        }
        if size > (text.bytes.len() - text.at) as u128 {
            return Err(Verdict::Partial);
        }
        text.at += usize::try_from(size).map_err(|_| Verdict::Partial)?;
        text.line_end()?;
    }
    while text.peek()? != b'\r' {
        text.trailer()?;
    }
    text.line_end()?;
    Ok(text.at)
}

/// A body, and how far it was read.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of extensions and trailers so far. The first byte of an extension does not count, nor does a line end.
    overhead: usize,
}

impl Text<'_> {
    fn peek(&self) -> Result<u8, Verdict> {
        self.bytes.get(self.at).copied().ok_or(Verdict::Partial)
    }

    fn broken<T>() -> Result<T, Verdict> {
        Err(Verdict::Refused(vec![400]))
    }

    /// Takes a byte that counts as overhead.
    fn take(&mut self) -> Result<(), Verdict> {
        self.at += 1;
        self.overhead += 1;
        if self.overhead > OVERHEAD_BYTES_MAX {
            return Self::broken();
        }
        Ok(())
    }

    fn line_end(&mut self) -> Result<(), Verdict> {
        for expected in *b"\r\n" {
            if self.peek()? != expected {
                return Self::broken();
            }
            self.at += 1;
        }
        Ok(())
    }

    fn size(&mut self) -> Result<u128, Verdict> {
        let start = self.at;
        let mut size = 0;
        while let Some(digit) = (self.peek()? as char).to_digit(16) {
            size = size * 16 + u128::from(digit);
            self.at += 1;
            if self.at - start > 16 || size >= 1 << 63 {
                return Self::broken();
            }
        }
        if self.at == start {
            return Self::broken();
        }
        Ok(size)
    }

    fn space(&mut self) -> Result<(), Verdict> {
        while matches!(self.peek()?, b' ' | b'\t') {
            self.take()?;
        }
        Ok(())
    }

    fn token(&mut self) -> Result<(), Verdict> {
        let start = self.at;
        while is_name(&[self.peek()?]) {
            self.take()?;
        }
        if self.at == start {
            Self::broken()
        } else {
            Ok(())
        }
    }

    fn extensions(&mut self) -> Result<(), Verdict> {
        if self.peek()? == b'\r' {
            return Ok(());
        }
        // The first byte, a space or the semicolon, is free.
        if matches!(self.peek()?, b' ' | b'\t') {
            self.at += 1;
            self.space()?;
            self.expect(b';')?;
        } else if self.peek()? == b';' {
            self.at += 1;
        } else {
            return Self::broken();
        }
        loop {
            self.space()?;
            self.token()?;
            let had_space = self.spaced()?;
            if self.peek()? == b'=' {
                self.take()?;
                self.space()?;
                if self.peek()? == b'"' {
                    self.quoted()?;
                } else {
                    self.token()?;
                }
                if self.spaced()? {
                    self.expect(b';')?;
                    continue;
                }
            } else if had_space {
                self.expect(b';')?;
                continue;
            }
            match self.peek()? {
                b';' => self.take()?,
                b'\r' => return Ok(()),
                _ => return Self::broken(),
            }
        }
    }

    /// Skips space; whether there was some.
    fn spaced(&mut self) -> Result<bool, Verdict> {
        let start = self.at;
        self.space()?;
        Ok(self.at > start)
    }

    fn expect(&mut self, byte: u8) -> Result<(), Verdict> {
        if self.peek()? == byte {
            self.take()
        } else {
            Self::broken()
        }
    }

    fn quoted(&mut self) -> Result<(), Verdict> {
        self.expect(b'"')?;
        loop {
            match self.peek()? {
                b'"' => return self.take(),
                b'\\' => {
                    self.take()?;
                    self.plain()?;
                }
                _ => self.plain()?,
            }
        }
    }

    /// A byte of a quoted string that is no control character.
    fn plain(&mut self) -> Result<(), Verdict> {
        match self.peek()? {
            b'\t' => self.take(),
            0..=31 | 127 => Self::broken(),
            _ => self.take(),
        }
    }

    fn trailer(&mut self) -> Result<(), Verdict> {
        let start = self.at;
        self.token()?;
        let name = lower(&self.bytes[start..self.at]);
        if self.peek()? != b':' {
            return Self::broken();
        }
        let forbidden = "authorization connection content-encoding content-length content-range content-type cookie expect forwarded \
             host keep-alive proxy-authorization te trailer transfer-encoding upgrade x-forwarded-for";
        if forbidden.split_whitespace().any(|one| one == name) {
            return Self::broken();
        }
        self.take()?;
        while self.peek()? != b'\r' {
            self.plain()?;
        }
        self.line_end()
    }
}

/// A token (RFC 9110, section 5.6.2).
fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|byte| {
            matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
                || "!#$%&'*+-.^_`|~".contains(*byte as char)
        })
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

fn values<'a>(headers: &'a [(String, Vec<u8>)], wanted: &str) -> Vec<&'a [u8]> {
    headers
        .iter()
        .filter(|(name, _)| name == wanted)
        .map(|(_, value)| &value[..])
        .collect()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    (0..bytes.len()).find(|at| bytes[*at..].starts_with(wanted))
}

fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, separator) {
        pieces.push(&rest[..at]);
        rest = &rest[at + separator.len()..];
    }
    pieces.push(rest);
    pieces
}
