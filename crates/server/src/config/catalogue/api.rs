//! `[http_api]`, and each of `[[http_api.keys]]`.

use super::Form::{Flag, List, Text, Word};
use super::{Described, Group};

/// Who may call the API, and how it tells errors.
pub(in super::super) const HTTP_API: &[Group] = &[Group {
    heading: "Access and errors",
    options: &[
        Described::new("key", Text, "", "api-key by its other name.").secret(),
        Described::new(
            "insecure",
            Flag,
            "false",
            "Everybody may call the API; only for development.",
        ),
        Described::new(
            "error_mode",
            Word(&["transport"]),
            "",
            "transport: errors are told by the status of the answer, unless a request says otherwise.",
        ),
        Described::new(
            "handler_prefix",
            Text,
            "/api",
            "The path in front of every method, as in /api/publish.",
        )
        .fixed(),
        Described::table("keys", "A key with a name and rights of its own."),
    ],
}];

/// A key.
pub(in super::super) const API_KEY: &[Group] = &[Group {
    heading: "The key and its rights",
    options: &[
        Described::depends(
            "name",
            Text,
            "none",
            "billing",
            "What metrics and refusals call the key; every key needs a name.",
        ),
        Described::depends(
            "key",
            Text,
            "none",
            "choose-a-long-one",
            "The key itself; or write key_sha256.",
        )
        .secret(),
        Described::depends(
            "key_sha256",
            Text,
            "none",
            "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a",
            "The key's SHA-256 in hexadecimal digits: printf %s KEY | sha256sum.",
        )
        .secret(),
        Described::depends(
            "methods",
            List,
            "all",
            r#"["publish", "broadcast"]"#,
            "Methods that the key may call.",
        ),
        Described::depends(
            "namespaces",
            List,
            "all",
            r#"[""]"#,
            "Namespaces of the channels that the key may use, \"\" for channels without one.",
        ),
    ],
}];
