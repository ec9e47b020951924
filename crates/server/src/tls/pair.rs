//! A certificate and its key: read, and checked for what would fail in a client's hands.

use super::words::one_line;
use super::{LoadFault, PairFiles, Shown};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name, X509Version};

/// MiB of a file with certificates. All CAs that a browser trusts are 200 KiB.
const FILE_MEBIBYTES_MAX: u64 = 1;

/// Bytes of a name. That of a host has 253 at most.
const NAME_BYTES_MAX: usize = 256;

/// A certificate that can be shown to clients.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) shown: Shown,
    /// A signature takes longer than everything else in a handshake: 700 us with RSA of 2,048 bits, 500 with P-384, 30 with P-256.
    pub(super) signs_slowly: bool,
}

impl Pair {
    /// Reads both files, and checks that they belong together.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub(super) fn read(files: &PairFiles, provider: &CryptoProvider) -> Result<Self, LoadFault> {
        let (field, key_field) = (&*files.fields.0, &*files.fields.1);
        let chain = read_certificates(field, &files.certificate)?;
        let (shown, signs_slowly) = check_chain(field, &files.certificate, &chain)?;
        let key = read_key(key_field, &files.key)?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            let advice = match error {
                rustls::Error::InconsistentKeys(_) => format!(
                    "is not the key of the first certificate in {:?}: name the files of one pair",
                    files.certificate.display().to_string()
                ),
                error => format!("cannot be used: {error}; {NEW_KEY}"),
            };
            LoadFault::new(key_field, &files.key, advice)
        })?;
        Ok(Self {
            key: Arc::new(key),
            shown,
            signs_slowly,
        })
    }
}

/// What is wrong with a key beside a certificate that is at fault itself. Nobody can tell whether they belong together.
pub(super) fn key_fault(files: &PairFiles, fault: &LoadFault) -> Option<LoadFault> {
    let is_of_key = fault.path == files.key;
    let read = (!is_of_key).then(|| read_key(&files.fields.1, &files.key));
    read.and_then(Result::err)
}

fn read_key(field: &str, path: &Path) -> Result<PrivateKeyDer<'static>, LoadFault> {
    let text = read(field, path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let advice = match is_encrypted(&text) {
            true => {
                "is encrypted: store the key without a passphrase, readable by the server alone"
            }
            false => "has no private key in PEM (-----BEGIN PRIVATE KEY-----)",
        };
        LoadFault::new(field, path, advice)
    })
}

fn is_encrypted(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("ENCRYPTED")
}

/// The certificates of a file, in their order.
pub(super) fn read_certificates(
    field: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, LoadFault> {
    let text = read(field, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| {
        LoadFault::new(
            field,
            path,
            match error {
                pem::Error::MissingSectionEnd { .. } => {
                    "ends in the middle of a certificate: write the whole file".to_owned()
                }
                error => format!("is no PEM file with certificates ({error})"),
            },
        )
    })?;
    if chain.is_empty() {
        let advice = "has no certificate in PEM (-----BEGIN CERTIFICATE-----)";
        return Err(LoadFault::new(field, path, advice));
    }
    Ok(chain)
}

/// Why a certificate may not stand among the CAs of clients: whoever has its key could sign others.
///
/// Without this check webpki takes any certificate that it is given as a root. Certificates of version 1 do not say what they are for.
pub(super) fn check_authority(der: &[u8]) -> Result<Authority, String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let name = shown(certificate.subject(), NAME_BYTES_MAX);
    if certificate.version() != X509Version::V1 && !certificate.is_ca() {
        return Err(format!(
            "holds the certificate of {name}, which is no CA: name the CA that signed it"
        ));
    }
    let has_ended = certificate.validity().not_after.timestamp() <= now();
    Ok(Authority { name, has_ended })
}

/// What is to be known about a CA of clients.
pub(super) struct Authority {
    pub(super) name: String,
    pub(super) has_ended: bool,
}

pub(super) fn read(field: &str, path: &Path) -> Result<Vec<u8>, LoadFault> {
    let text = read_file(path);
    text.map_err(|error| LoadFault::new(field, path, format!("cannot be read: {error}")))
}

/// A file with certificates, or a key.
///
/// # Errors
/// It cannot be read, or is far larger than any such file, or is a pipe or a device.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    myriad_files::read(path, FILE_MEBIBYTES_MAX)
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Checks what clients check, as far as it needs no list of authorities: times, names, and that each certificate signs the one before.
fn check_chain(
    field: &str,
    path: &Path,
    chain: &[CertificateDer<'_>],
) -> Result<(Shown, bool), LoadFault> {
    let fault = |advice: String| LoadFault::new(field, path, advice);
    let mut parsed = Vec::with_capacity(chain.len());
    for (nth, der) in (1..).zip(chain) {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| fault(format!("certificate {nth} cannot be read: {error}")))?;
        parsed.push(certificate);
    }
    let own = &parsed[0];
    if own.version() != X509Version::V3 {
        return Err(fault(
            "is an X.509 certificate of version 1, which clients refuse: sign it again with extensions (openssl x509 -req -extfile FILE, with subjectAltName=DNS:NAME in it)".into(),
        ));
    }
    let validity = own.validity();
    let expires_at = validity.not_after.timestamp();
    if expires_at <= now() {
        return Err(fault(format!(
            "expired on {}: renew it",
            validity.not_after
        )));
    }
    check_order(&parsed).map_err(fault)?;
    let signs_slowly = signs_slowly(own.public_key()).map_err(fault)?;
    let names = names(own);
    let shown = Shown {
        remarks: remarks(&parsed, &names),
        names,
        begins_at: validity.not_before.timestamp(),
        expires_at,
        is_renewed: false,
        path: path.to_owned(),
    };
    Ok((shown, signs_slowly))
}

/// A name of a certificate, for one line. Others may have written it.
pub(super) fn shown(name: &X509Name<'_>, bytes_max: usize) -> String {
    one_line(&name.to_string(), bytes_max)
}

/// Checks that each certificate signs the one before.
///
/// # Errors
/// The first place where it does not: what to do.
fn check_order(chain: &[X509Certificate<'_>]) -> Result<(), String> {
    for (nth, pair) in (1..).zip(chain.windows(2)) {
        if pair[0].issuer() != pair[1].subject() {
            return Err(format!(
                "is out of order: certificate {nth} ({}) is signed by {}, and certificate {} is {}; put the server's own certificate first, then the one that signs it, and so on",
                shown(pair[0].subject(), NAME_BYTES_MAX),
                shown(pair[0].issuer(), NAME_BYTES_MAX),
                nth + 1,
                shown(pair[1].subject(), NAME_BYTES_MAX),
            ));
        }
    }
    Ok(())
}

/// What is odd about the first certificate of a chain, but no reason to refuse it.
fn remarks(chain: &[X509Certificate<'_>], names: &[String]) -> Vec<String> {
    let own = &chain[0];
    let validity = own.validity();
    let mut remarks = Vec::new();
    if validity.not_before.timestamp() > now() {
        remarks.push(format!(
            "it is valid from {} on: clients refuse it until then",
            validity.not_before
        ));
    }
    if names.is_empty() {
        remarks.push(
            "it names no host, and clients look for one: add subject alternative names".into(),
        );
    }
    if own.is_ca() {
        remarks.push("it is one of a CA, so some clients refuse it: make it with basicConstraints=critical,CA:FALSE".into());
    }
    if let Ok(Some(usage)) = own.extended_key_usage()
        && !usage.value.server_auth
        && !usage.value.any
    {
        remarks.push("it is not made for servers (extended key usage), so clients refuse it: ask for one with serverAuth".into());
    }
    if let Some(issuer) = missing_issuer(chain) {
        remarks.push(format!(
            "it is alone in its file: many clients refuse it without the certificate of its issuer, {issuer}; name the file with the whole chain (certbot calls it fullchain.pem)"
        ));
    }
    remarks
}

/// Bits of a key of P-256.
const P256_BITS: usize = 256;

/// Bits of an RSA key that browsers and rustls accept.
const RSA_BITS_MIN: usize = 2_048;

/// The advice about a key that cannot be used.
const NEW_KEY: &str = "make an ECDSA P-256 key, or an RSA key with 2048 bits or more";

/// Whether signatures with this key take longer than everything else in a handshake.
///
/// # Errors
/// Clients refuse such a key: what to do.
fn signs_slowly(key: &SubjectPublicKeyInfo<'_>) -> Result<bool, String> {
    match key.parsed() {
        Ok(PublicKey::EC(point)) => Ok(point.key_size() > P256_BITS),
        Ok(PublicKey::RSA(key)) if key.key_size() < RSA_BITS_MIN => Err(format!(
            "has an RSA key with {} bits, and clients refuse fewer than {RSA_BITS_MIN}: {NEW_KEY}",
            key.key_size()
        )),
        Ok(PublicKey::RSA(_)) => Ok(true),
        // Ed25519 is as fast as P-256.
        _ => Ok(false),
    }
}

/// The issuer of a certificate that is alone in its file, if clients need the issuer's certificate too.
///
/// A public authority writes into each certificate where its issuer's certificate is, because that issuer is not a root (RFC 5280,
/// section 4.2.2.1). A private CA usually does not: its root signs, and clients have the root.
fn missing_issuer(chain: &[X509Certificate<'_>]) -> Option<String> {
    let [own] = chain else { return None };
    let is_elsewhere =
        own.extensions()
            .iter()
            .any(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityInfoAccess(access) => {
                    let mut described = access.accessdescs.iter();
                    described.any(|one| one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS)
                }
                _ => false,
            });
    (is_elsewhere && own.issuer() != own.subject()).then(|| shown(own.issuer(), NAME_BYTES_MAX))
}

/// Hosts and addresses among a certificate's alternative names. Clients ignore its common name (RFC 9110, section 4.3.4).
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let names = extension.value.general_names.iter();
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(one_line(name, NAME_BYTES_MAX)),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => Some(IpAddr::from([*a, *b, *c, *d]).to_string()),
            bytes => {
                let octets: [u8; 16] = bytes.try_into().ok()?;
                Some(IpAddr::from(octets).to_string())
            }
        },
        _ => None,
    });
    names.collect()
}
