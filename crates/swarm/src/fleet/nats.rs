//! The connection to NATS.

use super::FleetError;
use async_nats::{Client, ConnectOptions};
use std::path::PathBuf;
use std::time::Duration;

/// How long connecting may take, and a request that is answered at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the NATS server is, and who we are there.
#[derive(Clone, Debug)]
pub struct Nats {
    /// Such as `nats://127.0.0.1:4222`, with a user and a password or a token where they are needed. Several, separated by commas,
    /// are servers of one cluster.
    pub url: String,
    /// A file of credentials, as `nsc` and `nk` write them.
    pub creds: Option<PathBuf>,
}

/// Connects.
pub(super) async fn connect(nats: &Nats, name: &str) -> Result<Client, FleetError> {
    let mut options = ConnectOptions::new()
        .name(name)
        .ping_interval(PATIENCE)
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE));
    if let Some(path) = &nats.creds {
        options = options
            .credentials_file(path)
            .await
            .map_err(|error| FleetError::Credentials(path.clone(), error.to_string()))?;
    }
    // The library reads them from no URL.
    options = match user_of(&nats.url) {
        Some((user, Some(password))) => options.user_and_password(user, password),
        Some((token, None)) => options.token(token),
        None => options,
    };
    let servers = without_secret(&nats.url);
    let servers: Vec<&str> = servers.split(',').collect();
    options
        .connect(servers)
        .await
        .map_err(|error| FleetError::Connect(without_secret(&nats.url), error.to_string()))
}

/// The user and the password, or the token, of the first server that has one. They are taken as they are written.
fn user_of(url: &str) -> Option<(String, Option<String>)> {
    let mut users = url.split(',').filter_map(|one| {
        let rest = one.split_once("://").map_or(one, |(_, rest)| rest);
        rest.rsplit_once('@').map(|(user, _)| user)
    });
    let user = users.next()?;
    Some(match user.split_once(':') {
        Some((user, password)) => (user.to_owned(), Some(password.to_owned())),
        None => (user.to_owned(), None),
    })
}

/// A URL as it may be shown: without what stands before the `@`.
fn without_secret(url: &str) -> String {
    let shown = url.split(',').map(|one| {
        let (scheme, rest) = one.split_once("://").unwrap_or(("nats", one));
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        format!("{}://{host}", scheme.trim())
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_secret("nats://ann:se@cret@10.0.0.1:4222, tls://token@b:4222");
        assert_eq!(shown, "nats://10.0.0.1:4222,tls://b:4222");
        assert_eq!(without_secret("localhost"), "nats://localhost");
        let user = user_of("nats://ann:se@cr:et@10.0.0.1:4222");
        assert_eq!(user, Some(("ann".to_owned(), Some("se@cr:et".to_owned()))));
        assert_eq!(
            user_of("a:4222,tls://token@b"),
            Some(("token".to_owned(), None))
        );
        assert_eq!(user_of("nats://a:4222"), None);
    }
}
