//! The user whom a client's certificate names.

use myriad_tls_stage::ReadUser;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// The longest name that can be a user. A certificate may have one of 60 KB.
const USER_BYTES_MAX: usize = 256;

/// Which name of a certificate is the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientUser {
    /// The common name of its subject.
    CommonName,
    /// The first DNS name of its subject alternative names (RFC 5280, section 4.2.1.6).
    Dns,
    /// The first e-mail address there.
    Email,
    /// The first URI there, such as `spiffe://example.com/device/7`.
    Uri,
}

impl ClientUser {
    /// What reads it. The handshake has verified the certificate before.
    pub(crate) fn read_user(self) -> ReadUser {
        match self {
            Self::CommonName => |der| user_of(der, common_name),
            Self::Dns => |der| user_of(der, |certificate| alternative_name(certificate, dns)),
            Self::Email => |der| user_of(der, |certificate| alternative_name(certificate, email)),
            Self::Uri => |der| user_of(der, |certificate| alternative_name(certificate, uri)),
        }
    }
}

/// None if the certificate has no such name, or one that is empty, too long, has control characters, or begins or ends with a space.
///
/// A header's value has no spaces at its ends (RFC 9110, section 5.5), so the application would take one user for another.
///
/// It runs on a shard's thread, so it logs nothing.
fn user_of(der: &[u8], find: impl Fn(&X509Certificate<'_>) -> Option<String>) -> Option<Arc<str>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = find(&certificate)?;
    let is_usable = (1..=USER_BYTES_MAX).contains(&name.len())
        && name.trim() == name
        && !name.contains(char::is_control);
    is_usable.then(|| name.into())
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?;
    // Two of them could be read in two ways.
    names
        .next()
        .is_none()
        .then(|| name.as_str().ok())?
        .map(str::to_owned)
}

/// The first alternative name of a kind. It is ASCII (RFC 5280, section 4.2.1.6), or it is none.
fn alternative_name<'a>(
    certificate: &'a X509Certificate<'_>,
    kind: impl Fn(&GeneralName<'a>) -> Option<&'a str>,
) -> Option<String> {
    let names = certificate.subject_alternative_name().ok()??;
    let names = &names.value.general_names;
    // A name that cannot be read may have been of this kind, and then a later one is not the first.
    let is_read = !names
        .iter()
        .any(|name| matches!(name, GeneralName::Invalid(..)));
    let name = names.iter().find_map(kind).filter(|name| name.is_ascii());
    name.filter(|_| is_read).map(str::to_owned)
}

fn dns<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    match name {
        GeneralName::DNSName(host) => Some(host),
        _ => None,
    }
}

fn email<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    match name {
        GeneralName::RFC822Name(address) => Some(address),
        _ => None,
    }
}

fn uri<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    match name {
        GeneralName::URI(uri) => Some(uri),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    /// The certificate of these names, read in each way.
    fn users(common_names: &[&str], names: Vec<SanType>) -> [Option<String>; 4] {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in common_names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let kinds = [
            ClientUser::CommonName,
            ClientUser::Dns,
            ClientUser::Email,
            ClientUser::Uri,
        ];
        kinds.map(|kind| kind.read_user()(certificate.der()).map(|user| user.to_string()))
    }

    fn text<T: TryFrom<&'static str>>(name: &'static str) -> T {
        T::try_from(name).ok().expect("a name")
    }

    #[test]
    fn each_kind_of_name_is_found_among_the_others() {
        let names = vec![
            SanType::URI(text("spiffe://example.com/device/7")),
            SanType::Rfc822Name(text("seven@example.com")),
            SanType::DnsName(text("seven.example.com")),
            SanType::DnsName(text("other.example.com")),
        ];
        let expected = [
            "Gerät 7",
            "seven.example.com",
            "seven@example.com",
            "spiffe://example.com/device/7",
        ];
        assert_eq!(
            users(&["Gerät 7"], names),
            expected.map(|name| Some(name.to_owned()))
        );
    }

    #[test]
    fn a_certificate_without_the_name_has_no_user() {
        assert_eq!(users(&[], vec![]), [const { None }; 4]);
        let host = vec![SanType::DnsName(text("seven.example.com"))];
        let host = users(&[], host);
        assert_eq!(host[1].as_deref(), Some("seven.example.com"));
        assert_eq!([&host[0], &host[2], &host[3]], [&None; 3]);
        assert_eq!(ClientUser::Dns.read_user()(b"no certificate"), None);
    }

    #[test]
    fn a_name_that_could_mislead_is_no_user() {
        let long = "x".repeat(USER_BYTES_MAX + 1);
        for name in ["", " ", "a\nb", "a\0b", "alice ", " alice", &long] {
            assert_eq!(users(&[name], vec![])[0], None, "{name:?}");
        }
        let longest = "x".repeat(USER_BYTES_MAX);
        assert_eq!(users(&[&longest], vec![])[0], Some(longest));
    }
}
