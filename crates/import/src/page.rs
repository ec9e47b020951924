//! The tables of docs/centrifugo.md, made of the same rows as the conversion.

use crate::table::{How, Row, Scope};
use std::fmt::Write as _;

const BEGIN: &str = "<!-- A test writes what follows: MYRIAD_WRITE_DOCS=1. -->\n";

impl Scope {
    fn heading(self) -> &'static str {
        match self {
            Self::Top => "Options at the top",
            Self::Token => "Keys for tokens",
            Self::Namespace => "Namespaces",
            Self::Proxy => "Proxies",
            Self::RpcNamespace => "Namespaces of methods",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Top => "With their paths in version 6; in version 5 all names are flat.",
            Self::Token => {
                "In `client.token` and `client.subscription_token`. In version 5 the names begin with `token_` and `subscription_token_`."
            }
            Self::Namespace => {
                "In `channel.without_namespace` and each of `channel.namespaces`. In version 5 the first ones stand at the top, and the others in `namespaces`."
            }
            Self::Proxy => {
                "In `client.proxy.connect`, `client.proxy.refresh`, `channel.proxy.subscribe`, `channel.proxy.publish`, `channel.proxy.sub_refresh`, `rpc.proxy` and each of `proxies`. In version 5 one option is for all of them and begins with `proxy_`; each endpoint and timeout has a name such as `proxy_connect_endpoint`, and an endpoint turns its calls on. With `granular_proxy_mode` the names of proxies do that."
            }
            Self::RpcNamespace => {
                "In `rpc.without_namespace` and each of `rpc.namespaces` (`rpc_namespaces` in version 5)."
            }
        }
    }
}

fn code(text: &str) -> String {
    let names = text.split_whitespace();
    names
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn line(row: &Row) -> String {
    let became = match row.how {
        How::Same => "the same".to_owned(),
        How::Differs(text) | How::Ruled(text) => text.to_owned(),
        How::Gone(text) => format!("not there: {text}"),
        How::Decide(text) => format!("not there, **decide**: {text}"),
        How::Part => "with the option before it".to_owned(),
    };
    let cells = [code(row.v6), code(row.v5), code(row.ours), became];
    let cells = cells.map(|cell| match &*cell {
        "" => " ".to_owned(),
        cell => format!(" {cell} "),
    });
    format!("|{}|", cells.join("|"))
}

fn tables() -> String {
    let mut text = String::new();
    for scope in Scope::ALL {
        let _ = writeln!(text, "\n## {}\n\n{}\n", scope.heading(), scope.about());
        text.push_str("| Centrifugo 6 | Centrifugo 5 | here | |\n| --- | --- | --- | --- |\n");
        for row in scope.rows() {
            let _ = writeln!(text, "{}", line(row));
        }
    }
    text
}

#[test]
fn the_page_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/centrifugo.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, _) = page.split_once(BEGIN).unwrap();
    let expected = format!("{head}{BEGIN}{}", tables());
    if std::env::var_os("MYRIAD_WRITE_DOCS").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        assert!(
            page == expected,
            "docs/centrifugo.md is old: run this test with MYRIAD_WRITE_DOCS=1"
        );
    }
}
