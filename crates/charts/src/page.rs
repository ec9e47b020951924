//! A whole page around figures and text.

use crate::library;

/// Colours of light and dark pages, text, tables, charts.
pub(crate) const STYLE: &str = include_str!("../assets/page.css");

/// Drawings, and how pages with them are printed.
const DRAWING_STYLE: &str = include_str!("../assets/drawing.css");

/// A page of its own: `body` is HTML, everything else is text. Loads nothing from anywhere.
#[must_use]
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{style}</style>\n</head>\n<body>\n{body}{scripts}</body>\n</html>\n",
        policy = library::content_security_policy(),
        title = escape(title),
        scripts = library::elements(),
    )
}

/// A page without any script: it is read as it is printed. `language` is a tag such as `en` or `zh-CN`.
#[must_use]
pub fn static_document(title: &str, language: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"{language}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}{DRAWING_STYLE}{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        language = escape(language),
        title = escape(title),
    )
}

/// A table of HTML cells, the first of each row its head. On a narrow page each row becomes a list of its cells.
#[must_use]
pub fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let names: Vec<String> = heads.iter().map(|head| escape(head)).collect();
    let head: String = names
        .iter()
        .map(|name| format!("<th scope=\"col\">{name}</th>"))
        .collect();
    let mut text = format!("<table class=\"figures\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n");
    for row in rows {
        let cells = row.iter().zip(&names).enumerate();
        let cells: String = cells
            .map(|(index, (cell, name))| {
                if index == 0 {
                    format!("<th scope=\"row\">{cell}</th>")
                } else {
                    format!("<td data-head=\"{name}\">{cell}</td>")
                }
            })
            .collect();
        text.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    text.push_str("</tbody></table>\n");
    text
}

/// Text as text, in an element or in a quoted attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_knows_its_head_for_narrow_pages() {
        let table = table(
            &["name", "\"a\""],
            [vec!["x".to_owned(), "<b>1</b>".to_owned()]],
        );
        let row = "<tr><th scope=\"row\">x</th><td data-head=\"&quot;a&quot;\"><b>1</b></td></tr>";
        assert!(table.contains(row), "{table}");
    }

    #[test]
    fn a_static_page_has_no_script() {
        let page = static_document("<T>", "zh-CN", "", "<p>body</p>\n");
        assert!(page.contains("<html lang=\"zh-CN\">") && page.contains("&lt;T&gt;"));
        for reference in ["<script", "src=", "href=", "@import", "<link", "url("] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = document("<T>", "", "<p>body</p>\n");
        assert!(page.contains("<title>&lt;T&gt;</title>"));
        assert!(page.contains("default-src 'none'"));
        // The library names its own page in a comment; no element and no style refers to anything.
        for reference in ["src=", "href=", "@import", "<link", "url("] {
            let (before, scripts) = page.split_once("<script>").unwrap();
            assert!(!before.contains(reference), "{reference}");
            assert!(!scripts.contains("<script src"), "{reference}");
        }
    }
}
