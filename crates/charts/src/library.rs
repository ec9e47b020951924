//! The scripts of a page: the vendored library, and what hands it the charts.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

/// Chart.js, as its authors ship it (`vendor/README.md`).
const CHART_JS: &str = include_str!("../vendor/chart.js-4.6.1/chart.umd.min.js");
/// Hands it the figures of the page.
const DRAW: &str = include_str!("../assets/draw.js");
/// The library's last line, which names a file that no page has.
const SOURCE_MAP: &str = "//# sourceMappingURL=";

/// The scripts in the order in which they run.
fn scripts() -> [&'static str; 2] {
    let code = CHART_JS.split(SOURCE_MAP).next().unwrap_or(CHART_JS);
    [code, DRAW]
}

/// Both as elements, for the end of a page.
pub(crate) fn elements() -> String {
    scripts()
        .map(|script| format!("<script>{script}</script>\n"))
        .concat()
}

/// Allows these scripts, by their hashes, and styles in the page. Allows nothing else, no connection above all.
pub(crate) fn content_security_policy() -> String {
    let hashes = scripts().map(|script| {
        let hash = BASE64_STANDARD.encode(Sha256::digest(script));
        format!(" 'sha256-{hash}'")
    });
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src{}",
        hashes.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn the_vendored_file_is_the_one_that_was_fetched() {
        let sums = include_str!("../vendor/chart.js-4.6.1/SHA256SUMS");
        let mut sum = String::new();
        for byte in Sha256::digest(CHART_JS) {
            let _ = write!(sum, "{byte:02x}");
        }
        assert_eq!(sums.split_whitespace().next(), Some(sum.as_str()));
        assert!(CHART_JS.starts_with("/*!\n * Chart.js v4.6.1\n"));
    }

    #[test]
    fn no_script_ends_its_element_early() {
        for script in scripts() {
            let script = script.to_ascii_lowercase();
            assert!(!script.contains("</script") && !script.contains("<!--"));
            assert!(!script.contains(SOURCE_MAP));
        }
    }
}
