//! What a row says of a process that failed.

use myriad_demo::process::Process;

/// The line that says most about the failure.
pub(crate) fn of(process: &Process) -> String {
    let lines = process.last_lines();
    last(lines.iter().map(String::as_str))
}

/// The first line with "error" in it, or the last one; enough for a row of a table.
pub(crate) fn last<'t>(lines: impl Iterator<Item = &'t str> + Clone) -> String {
    let mut telling = lines
        .clone()
        .filter(|line| line.contains("rror") && !line.starts_with("NOTE:"));
    let line = telling.next().or_else(|| lines.last());
    line.map_or_else(
        || "no output".to_owned(),
        |line| line.chars().take(200).collect(),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_that_tells_most_is_chosen() {
        let words = |text: &str| super::last(text.lines());
        assert_eq!(words(""), "no output");
        assert_eq!(words("one\ntwo"), "two");
        assert_eq!(
            words("NOTE: error counts\nError: no port\nat line 7"),
            "Error: no port"
        );
        assert_eq!(words(&"ż".repeat(500)).chars().count(), 200);
    }
}
