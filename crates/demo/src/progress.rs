//! Shows the progress of connecting.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use myriad_units::{count, rate};
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Without a terminal a line is written each time this much more is connected.
const LINE_PERCENT: u64 = 10;

/// A bar on a terminal, a few plain lines anywhere else.
pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines { wanted: u64, shown_percent: u64 },
}

impl Progress {
    /// A bar if standard error is a terminal. It is drawn there, so standard output stays plain text.
    pub(crate) fn new(wanted: u64) -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines {
                wanted,
                shown_percent: 0,
            };
        }
        let bar = ProgressBar::with_draw_target(Some(wanted), ProgressDrawTarget::stderr());
        let style = "  {bar:24.cyan/dim} {human_pos} of {human_len} connected, {rate} [{elapsed}]";
        let style = ProgressStyle::with_template(style).expect("the template is a constant");
        bar.set_style(style.with_key("rate", write_rate));
        Self::Bar(bar)
    }

    pub(crate) fn advance(&mut self, connected: u64, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Bar(bar) => bar.set_position(connected),
            Self::Lines {
                wanted,
                shown_percent,
            } => {
                let percent = connected * 100 / (*wanted).max(1);
                if percent < *shown_percent + LINE_PERCENT || percent >= 100 {
                    return Ok(());
                }
                *shown_percent = percent - percent % LINE_PERCENT;
                writeln!(
                    out,
                    "  {} of {} connected",
                    count(connected),
                    count(*wanted)
                )?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// The bar's own key for this has four digits after the point.
fn write_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // A bar without its rate is still a bar.
    let _ = out.write_str(&rate(state.per_sec()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_come_every_tenth() {
        let mut progress = Progress::Lines {
            wanted: 1_000,
            shown_percent: 0,
        };
        let mut out = Vec::new();
        for connected in [0, 50, 99, 100, 150, 340, 341, 999, 1_000] {
            progress.advance(connected, &mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "  100 of 1,000 connected\n  340 of 1,000 connected\n  999 of 1,000 connected\n"
        );
    }
}
