//! Who we are to a NATS server.

use crate::{Nats, NatsError, user_of};
use nkeys::KeyPair;
use std::path::Path;
use tokio::task::spawn_blocking;

/// MiB of a file with credentials or certificates.
pub(super) const FILE_MEBIBYTES_MAX: u64 = 1;

/// What a server is told about us. It has no debug format: all of it is secret.
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) token: Option<String>,
    pub(super) credentials: Option<Credentials>,
}

/// What a `.creds` file contains.
pub(super) struct Credentials {
    /// Says who we are; a server checks who signed it.
    pub(super) jwt: String,
    /// Proves that we are it.
    pub(super) key: KeyPair,
}

impl Login {
    /// Takes the user of the URL, and reads the file of credentials again: it may have been renewed.
    pub(super) async fn read(nats: &Nats) -> Result<Self, NatsError> {
        let (user, password, token) = match user_of(&nats.url) {
            Some((user, Some(password))) => (Some(user), Some(password), None),
            Some((token, None)) => (None, None, Some(token)),
            None => (None, None, None),
        };
        let mut credentials = None;
        if let Some(path) = &nats.credentials {
            let error = |why: String| NatsError::Credentials {
                path: path.clone(),
                why,
            };
            let text = read_credentials(path).await.map_err(error)?;
            credentials = Some(Credentials::parse(&text).map_err(error)?);
        }
        Ok(Self {
            user,
            password,
            token,
            credentials,
        })
    }
}

/// A file of credentials, read on a thread that may block.
///
/// # Errors
/// Why it cannot be read.
pub(crate) async fn read_credentials(path: &Path) -> Result<String, String> {
    let path = path.to_owned();
    let read = spawn_blocking(move || myriad_files::read_text(&path, FILE_MEBIBYTES_MAX));
    let text = read.await.map_err(|error| error.to_string())?;
    text.map_err(|why| why.to_string())
}

impl Credentials {
    /// Finds the two lines that stand between lines of dashes: the JWT, then the seed of the key.
    fn parse(text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut framed = lines.windows(3).filter_map(|lines| {
            let is_framed = is_frame(lines[0]) && is_token(lines[1]) && is_frame(lines[2]);
            is_framed.then_some(lines[1])
        });
        let jwt = framed.next().ok_or("it has no user JWT")?;
        let seed = framed.next().ok_or("it has no seed of a key")?;
        let key = KeyPair::from_seed(seed);
        let key = key.map_err(|why| format!("its seed is none: {why}"))?;
        Ok(Self {
            jwt: jwt.to_owned(),
            key,
        })
    }

    /// Signs what the server made up for this connection.
    pub(super) fn sign(&self, nonce: &str) -> Vec<u8> {
        let signed = self.key.sign(nonce.as_bytes());
        signed.expect("a key that was made of a seed signs")
    }
}

fn is_frame(line: &str) -> bool {
    line.len() >= 6 && line.starts_with("---") && line.ends_with("---")
}

fn is_token(line: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.=".contains(&byte);
    !line.is_empty() && line.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(jwt: &str, seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\n\
             NKEY Seed printed below can be used to sign and prove identity.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n\n\
             *************************************************************\n"
        )
    }

    #[test]
    fn a_file_has_a_jwt_and_a_key() {
        let key = KeyPair::new_user();
        let text = file("eyJ0eXAi.eyJqdGki.x-_=", &key.seed().unwrap());
        for text in [
            text.clone(),
            text.replace('\n', "\r\n"),
            text.trim_end_matches(['*', '\n']).to_owned(),
        ] {
            let credentials = Credentials::parse(&text).ok().unwrap();
            assert_eq!(credentials.jwt, "eyJ0eXAi.eyJqdGki.x-_=");
            let signed = credentials.sign("nonce");
            assert!(key.verify(b"nonce", &signed).is_ok());
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let why = |text: &str| Credentials::parse(text).err().unwrap();
        assert_eq!(why(""), "it has no user JWT");
        assert_eq!(why("eyJ0eXAi"), "it has no user JWT");
        let text = file("eyJ0eXAi", "SUA");
        let (first, _) = text.split_once("-----BEGIN USER").unwrap();
        assert_eq!(why(first), "it has no seed of a key");
        let refused = why(&text);
        assert!(refused.starts_with("its seed is none: "), "{refused}");
    }

    #[tokio::test]
    async fn the_user_is_the_urls() {
        let login = Login::read(&Nats::at("nats://ann:secret@a:4222")).await;
        let login = login.ok().unwrap();
        assert_eq!(login.user.as_deref(), Some("ann"));
        assert_eq!(login.password.as_deref(), Some("secret"));
        assert_eq!(login.token, None);
        let login = Login::read(&Nats::at("nats://token@a")).await;
        let login = login.ok().unwrap();
        assert_eq!((login.user, login.token.as_deref()), (None, Some("token")));
        let nats = Nats {
            credentials: Some("/nowhere/user.creds".into()),
            ..Nats::at("nats://a")
        };
        let refused = Login::read(&nats).await.err().unwrap().to_string();
        assert!(refused.contains("/nowhere/user.creds"), "{refused}");
    }
}
