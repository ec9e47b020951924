//! One order: the authority asks whether each name is ours, and then signs.

use super::super::words::one_line;
use super::challenges::{Challenges, Ready};
use super::{AcmeSettings, name_of};
use http_body_util::LengthLimitError;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeHandle, ChallengeType, Error, Identifier, NewOrder,
    Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::fmt;
use std::time::Duration;

/// What an order brings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Issued {
    /// PEM, our certificate first.
    pub(super) chain: String,
    /// PEM.
    pub(super) key: String,
}

/// Bytes of these words in the log.
const WORDS_BYTES_MAX: usize = 1_000;

/// Why an order failed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The authority said no.
    Refused(String),
    /// The authority does not know our account.
    NoAccount(String),
    /// The authority could not be asked, or does not speak ACME.
    Unreachable(String),
    /// Something could not be written.
    Unsaved(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why)
        | Self::NoAccount(why)
        | Self::Unreachable(why)
        | Self::Unsaved(why)) = self;
        // An authority writes what it likes.
        formatter.write_str(&one_line(why, WORDS_BYTES_MAX))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(problem) => {
                let text = words_of(&problem);
                match problem.r#type.as_deref() {
                    Some("urn:ietf:params:acme:error:accountDoesNotExist") => Self::NoAccount(text),
                    _ => Self::Refused(format!("the authority says: {text}")),
                }
            }
            Error::Timeout(_) => Self::Refused("the authority did not decide in time".into()),
            Error::Json(error) => {
                Self::Unreachable(format!("the authority's answer is not of ACME: {error}"))
            }
            Error::Other(error) if error.is::<LengthLimitError>() => {
                Self::Unreachable("an answer of the authority has more than 1 MiB".into())
            }
            Error::Other(error) => Self::Unreachable(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

/// What an authority says of a problem, for people.
fn words_of(problem: &Problem) -> String {
    let detail = problem.detail.clone();
    detail.unwrap_or_else(|| problem.to_string())
}

/// Requests in a row whose nonce an authority may refuse: each of them consists of three that the library makes. An authority refuses some
/// on purpose, or after a restart (RFC 8555, section 6.5), and half of them in tests. Nothing has happened then, so we ask again.
pub(super) const NONCES_MAX: usize = 8;

pub(super) fn is_bad_nonce(error: &Error) -> bool {
    let Error::Api(problem) = error else {
        return false;
    };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:badNonce")
}

/// Asks again while the nonce is refused. No function, because what it is given borrows the order anew each time.
macro_rules! patiently {
    ($ask:expr) => {{
        let mut refused = 0;
        loop {
            let result = $ask;
            refused += 1;
            match &result {
                Err(error)
                    if $crate::tls::acme::order::is_bad_nonce(error)
                        && refused < $crate::tls::acme::order::NONCES_MAX => {}
                _ => break result,
            }
        }
    }};
}
pub(super) use patiently;

/// How long the authority may take to decide, and to sign. It says itself when to ask again.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Orders a certificate for all names.
pub(super) async fn order(
    account: &Account,
    settings: &AcmeSettings,
    challenges: &Challenges,
) -> Result<Issued, Fault> {
    let names = settings.names.iter();
    let identifiers: Vec<_> = names.map(|name| Identifier::Dns(name.clone())).collect();
    let wanted = NewOrder::new(&identifiers);
    let mut order = patiently!(account.new_order(&wanted).await)?;
    let way = settings.challenge_type();
    patiently!(fetch_authorizations(&mut order).await)?;
    // Until the authority has decided.
    let answers = begin_challenges(&mut order, &way, challenges).await?;
    let status = patiently!(order.poll_ready(&POLLS).await)?;
    drop(answers);
    if status == OrderStatus::Invalid {
        return Err(why_invalid(&mut order).await);
    }
    let (request, key) =
        request(&settings.names).map_err(|error| Fault::Refused(error.to_string()))?;
    patiently!(order.finalize_csr(&request).await)?;
    let chain = patiently!(order.poll_certificate(&POLLS).await)?;
    Ok(Issued { chain, key })
}

/// Asks for those that have not been fetched.
async fn fetch_authorizations(order: &mut Order) -> Result<(), Error> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        authorization?;
    }
    Ok(())
}

/// Makes answers ready, and tells the authority to look at them.
async fn begin_challenges<'a>(
    order: &mut Order,
    way: &ChallengeType,
    challenges: &'a Challenges,
) -> Result<Vec<Ready<'a>>, Fault> {
    let mut answers = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let mut challenge = authorization.challenge(way.clone()).ok_or_else(|| {
            Fault::Refused(format!(
                "the authority offers no {} for {name}",
                name_of(way)
            ))
        })?;
        answers.push(prepare(challenges, &name, way, &challenge)?);
        patiently!(challenge.set_ready().await)?;
    }
    Ok(answers)
}

fn prepare<'a>(
    challenges: &'a Challenges,
    name: &str,
    way: &ChallengeType,
    challenge: &ChallengeHandle<'_>,
) -> Result<Ready<'a>, Fault> {
    let authorization = challenge.key_authorization();
    if *way == ChallengeType::Http01 {
        return Ok(challenges.show_text(&challenge.token, &authorization));
    }
    let shown = challenges.show_certificate(name, &authorization);
    shown.map_err(|error| Fault::Refused(format!("the answer for {name} cannot be made: {error}")))
}

/// What the authority found where it looked.
async fn why_invalid(order: &mut Order) -> Fault {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = patiently!(authorization.refresh().await) else {
            continue;
        };
        let mut challenges = state.challenges.iter();
        if let Some(problem) = challenges.find_map(|challenge| challenge.error.as_ref()) {
            let text = words_of(problem);
            return Fault::Refused(format!(
                "the authority could not see that {name} is ours: {text}"
            ));
        }
    }
    Fault::Refused("the authority refused the order without a reason".into())
}

/// A request for a certificate with a new key of P-256, which signs fastest.
fn request(names: &[String]) -> Result<(Vec<u8>, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}
