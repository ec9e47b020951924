//! `myriad token`: a token for trying things out.

use crate::commands::serve::Places;
use crate::{BAD_ARGUMENTS, say};
use clap::Args;
use myriad_server::{Flags, Span, TokenDraft, TokenDraftError, secret_remark};
use std::io::Write as _;
use std::process::ExitCode;

/// Makes a token (JWT, HS256) and prints it alone.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The secret is that of --secret, or hmac_secret_key of the config file or of MYRIAD_CLIENT_TOKEN_HMAC_SECRET_KEY.\n\
                  Other users of this machine can see arguments, so use --secret with test secrets only.\n\
                  Exit codes: 0 printed, 104 bad arguments or config."
)]
pub(crate) struct Arguments {
    /// The user's id; empty for an anonymous client
    #[arg(long, value_name = "ID")]
    user: String,

    /// Make a subscription token for this channel, instead of a connection token
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,

    /// How long the token counts; 0 for ever
    #[arg(long, value_name = "TIME", default_value = "1h")]
    expires_in: Span,

    /// What other clients are told of this one: JSON
    #[arg(long, value_name = "JSON")]
    info: Option<String>,

    /// The token's id (jti), by which it can be revoked
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Who signs it (iss) [default: the issuer of the configuration]
    #[arg(long, value_name = "TEXT")]
    issuer: Option<String>,

    /// For whom it is (aud) [default: the audience of the configuration]
    #[arg(long, value_name = "TEXT")]
    audience: Option<String>,

    /// The secret to sign with [default: that of the configuration]
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,

    #[command(flatten)]
    places: Places,
}

/// Prints a token.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match make(arguments) {
        Ok(token) => {
            // Whoever closes the pipe has read enough.
            let _ = writeln!(std::io::stdout(), "{token}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(format_args!("error: {error}"));
            ExitCode::from(BAD_ARGUMENTS)
        }
    }
}

fn make(arguments: Arguments) -> Result<String, TokenDraftError> {
    let draft = TokenDraft {
        user: arguments.user,
        channel: arguments.channel,
        expires_in: Some(arguments.expires_in.0).filter(|time| !time.is_zero()),
        info: arguments.info,
        id: arguments.id,
        issuer: arguments.issuer,
        audience: arguments.audience,
    };
    match arguments.secret {
        Some(secret) => {
            if let Some(remark) = secret_remark("--secret", &secret) {
                say(format_args!("warning: {remark}"));
            }
            draft.sign(&secret)
        }
        None => draft.sign_by(&arguments.places.sources(Flags::default()).read()?),
    }
}
