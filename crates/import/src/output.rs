//! The file that is written: tables in their order, with reasons above their lines.

use std::fmt::Write as _;

/// A config file of ours, as it is put together.
#[derive(Debug, Default)]
pub(crate) struct Output {
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    /// Such as `channel.namespaces[0]`; empty at the top.
    path: String,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    key: String,
    value: String,
    why: Option<String>,
    /// It waits for the operator's decision.
    is_comment: bool,
}

impl Output {
    /// Writes a value. A path that is there already gets the new one.
    pub(crate) fn set(&mut self, path: &str, value: impl Into<String>, why: Option<&str>) {
        self.put(path, value.into(), why, false);
    }

    /// Writes a line that does nothing until somebody takes its sign away.
    pub(crate) fn suggest(&mut self, path: &str, value: impl Into<String>, why: Option<&str>) {
        self.put(path, value.into(), why, true);
    }

    fn put(&mut self, path: &str, value: String, why: Option<&str>, is_comment: bool) {
        let (table, key) = split(path);
        let line = Line {
            key: key.to_owned(),
            value,
            why: why.map(str::to_owned),
            is_comment,
        };
        let table = self.table(table);
        match table.lines.iter_mut().find(|line| line.key == key) {
            Some(old) => *old = line,
            None => table.lines.push(line),
        }
    }

    /// The table of a path, which is there from now on.
    pub(crate) fn open(&mut self, path: &str) {
        self.table(path);
    }

    fn table(&mut self, path: &str) -> &mut Table {
        let known = self.tables.iter().position(|table| table.path == path);
        let at = known.unwrap_or_else(|| {
            self.tables.push(Table {
                path: path.to_owned(),
                lines: Vec::new(),
            });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    /// What is written at a path.
    pub(crate) fn value(&self, path: &str) -> Option<&str> {
        let (table, key) = split(path);
        let table = self.tables.iter().find(|known| known.path == table)?;
        let mut lines = table.lines.iter();
        let line = lines.find(|line| line.key == key && !line.is_comment)?;
        Some(&line.value)
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, path: &str) -> bool {
        self.value(path) == Some("true")
    }

    /// Takes a line out. Says whether it was there.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        let (table, key) = split(path);
        let Some(table) = self.tables.iter_mut().find(|known| known.path == table) else {
            return false;
        };
        let before = table.lines.len();
        table.lines.retain(|line| line.key != key);
        before != table.lines.len()
    }

    /// Takes a table out, with those in it.
    pub(crate) fn remove_table(&mut self, path: &str) {
        let below = format!("{path}.");
        self.tables
            .retain(|table| table.path != path && !table.path.starts_with(&below));
    }

    /// The text, below these words.
    pub(crate) fn text(&self, head: &str) -> String {
        let mut text = String::new();
        for line in head.lines() {
            let _ = writeln!(text, "# {line}");
        }
        // The top has no header of its own, so it has to come first.
        let (top, others): (Vec<_>, Vec<_>) =
            self.tables.iter().partition(|table| table.path.is_empty());
        for table in top.into_iter().chain(others) {
            let is_item = table.path.ends_with(']');
            if table.lines.is_empty() && !is_item {
                continue;
            }
            text.push('\n');
            if !table.path.is_empty() {
                let _ = writeln!(text, "{}", header(&table.path));
            }
            for line in &table.lines {
                if let Some(why) = &line.why {
                    let _ = writeln!(text, "# {why}");
                }
                let sign = if line.is_comment { "#" } else { "" };
                let _ = writeln!(text, "{sign}{} = {}", line.key, line.value);
            }
        }
        text
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// `[client]`, `[[channel.namespaces]]`, `[proxies.http]`: the last item of a list is the one that is meant.
fn header(path: &str) -> String {
    let mut name = String::new();
    let mut is_inside = false;
    for c in path.chars() {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ if is_inside => {}
            c => name.push(c),
        }
    }
    if path.ends_with(']') {
        format!("[[{name}]]")
    } else {
        format!("[{name}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_keep_their_order_and_the_top_is_first() {
        let mut output = Output::default();
        output.set("client.insecure", "true", Some("why"));
        output.open("channel.namespaces[0]");
        output.set("channel.namespaces[0].name", "\"ab\"", None);
        output.set("proxies[0].http.x", "1", None);
        output.set("listen", "\":8000\"", None);
        output.suggest("broker", "\"nats://a\"", Some("later"));
        output.set("client.insecure", "false", None);
        output.set("client.a", "1", None);
        assert!(output.remove("client.a") && !output.remove("client.a"));
        assert_eq!(output.value("broker"), None);
        assert!(!output.is_on("client.insecure"));
        let expected = "# head\n\nlisten = \":8000\"\n# later\n#broker = \"nats://a\"\n\n[client]\ninsecure = false\n\n\
                        [[channel.namespaces]]\nname = \"ab\"\n\n[proxies.http]\nx = 1\n";
        assert_eq!(output.text("head"), expected);
        output.remove_table("proxies[0]");
        assert!(!output.text("").contains("proxies"));
    }
}
