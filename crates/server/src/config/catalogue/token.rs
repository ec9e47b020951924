//! `[client.token]` and `[client.subscription_token]`.

use super::Form::{Count, Flag, Text};
use super::{Described, Group};

/// Keys for tokens, and what tokens must say.
pub(in super::super) const TOKEN: &[Group] = &[
    Group {
        heading: "Keys",
        options: &[
            Described::depends(
                "enabled",
                Flag,
                "false",
                "true",
                "Subscription tokens have keys and rules of their own.",
            )
            .not_of_first(),
            Described::new(
                "hmac_secret_key",
                Text,
                "",
                "The secret of HS256, HS384 and HS512, such as 32 random bytes in hexadecimal.",
            )
            .secret(),
            Described::new(
                "hmac_previous_secret_key",
                Text,
                "",
                "The secret before this one, which still counts.",
            )
            .secret(),
            Described::new(
                "hmac_previous_secret_key_valid_until",
                Count,
                "0",
                "Until when the secret before this one counts, in seconds since 1970; 0 for ever.",
            ),
            Described::new(
                "rsa_public_key",
                Text,
                "",
                "The key of RS256, RS384 and RS512, as PEM.",
            ),
            Described::new(
                "ecdsa_public_key",
                Text,
                "",
                "The key of ES256, ES384 or ES512, as PEM.",
            ),
            Described::new(
                "eddsa_public_key",
                Text,
                "",
                "The key of EdDSA (Ed25519), as PEM.",
            ),
            Described::new(
                "jwks_public_endpoint",
                Text,
                "",
                "A URL with public keys (JWK Set), instead of keys in the file.",
            )
            .secret(),
        ],
    },
    Group {
        heading: "What a token must say",
        options: &[
            Described::new("audience", Text, "", "A text that aud must have."),
            Described::new(
                "audience_regex",
                Text,
                "",
                "A pattern that one of aud must match.",
            ),
            Described::new("issuer", Text, "", "What iss must be."),
            Described::new("issuer_regex", Text, "", "A pattern that iss must match."),
            Described::new(
                "user_id_claim",
                Text,
                "",
                "The claim with the user's id, if it is not sub.",
            ),
        ],
    },
];
