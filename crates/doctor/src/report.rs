//! The examination as a person reads it.

use crate::budget::{Concern, Effect};
use crate::changes::Change;
use crate::examination::{Examination, JudgedLimit};
use crate::limits::{Program, Role};
use crate::remarks::{Remark, Weight};
use myriad_layout::{Paint, Tone, wrapped};
use myriad_units::{bytes, count, counted};
use std::fmt::Write;

/// Columns of the report; most terminals have them, and longer lines are hard to read.
const WIDTH: usize = 100;
/// Where explanations begin.
const INDENT: usize = 4;

/// All of it: the answer, the limits by what they do, the remarks, and what could be changed.
#[must_use]
pub fn text(examination: &Examination, paint: Paint) -> String {
    let mut report = Report {
        out: String::new(),
        paint,
    };
    report.opening(examination);
    for (effect, title, column) in [
        (Effect::Stops, "What stops connections", "stops at"),
        (Effect::Degrades, "What makes them slower", "slower from"),
        (
            Effect::DelaysBursts,
            "What delays many that come at once",
            "at once",
        ),
        (
            Effect::CutsMassCloses,
            "What many that end at once meet",
            "at once",
        ),
    ] {
        report.limits(examination, effect, title, column);
    }
    report.remarks(&examination.remarks);
    report.changes(&examination.changes);
    report.out
}

struct Report {
    out: String,
    paint: Paint,
}

impl Report {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// A paragraph, indented; `mark` stands before its first line.
    fn paragraph(&mut self, mark: &str, text: &str, tone: Option<Tone>) {
        let indent = INDENT + mark.chars().count();
        for (index, line) in wrapped(text, WIDTH - indent).iter().enumerate() {
            let before = if index == 0 {
                format!("{:INDENT$}{mark}", "")
            } else {
                " ".repeat(indent)
            };
            let line = tone.map_or_else(|| line.clone(), |tone| self.paint.over(tone, line));
            self.line(&format!("{before}{line}"));
        }
    }

    fn title(&mut self, title: &str) {
        let title = self.paint.over(Tone::Strong, title);
        self.line("");
        self.line(&title);
    }

    fn opening(&mut self, examination: &Examination) {
        let machine = &examination.machine;
        let asked = format!(
            "{} of {}, {}",
            ends(examination.load.role),
            counted(examination.wanted, "connection"),
            program(examination.load.program)
        );
        self.line(&asked);
        let described = format!(
            "on {}, {} memory, {} of it available, Linux {}",
            counted(machine.cores.usable as u64, "core"),
            bytes(machine.memory.total_bytes),
            bytes(machine.memory.available_bytes),
            machine.kernel.release
        );
        self.line(&described);
        self.line("");
        for line in wrapped(&examination.headline, WIDTH) {
            let line = self.paint.over(Tone::Strong, &line);
            self.line(&line);
        }
        let verdict = if examination.enough {
            let text = format!("Enough for the {} asked for.", count(examination.wanted));
            self.paint.over(Tone::Good, &text)
        } else {
            let text = format!(
                "Not enough for the {} asked for.",
                count(examination.wanted)
            );
            self.paint.over(Tone::Bad, &text)
        };
        self.line(&verdict);
    }

    fn limits(&mut self, examination: &Examination, effect: Effect, title: &str, column: &str) {
        let chosen: Vec<&JudgedLimit> = examination
            .limits
            .iter()
            .filter(|judged| judged.limit.effect == effect)
            .collect();
        if chosen.is_empty() {
            return;
        }
        self.title(&format!("{title:<36}{:<20}{column:>18}", ""));
        for judged in chosen {
            self.limit(judged, judged.limit.name == examination.first_stop);
        }
    }

    fn limit(&mut self, judged: &JudgedLimit, is_first_stop: bool) {
        let limit = &judged.limit;
        let (mark, tone) = match judged.concern {
            Concern::None => ("✓", Tone::Good),
            Concern::Worse => ("!", Tone::Warning),
            Concern::Stops => ("✗", Tone::Bad),
        };
        let line = format!(
            "{} {:<34}{:<20}{}",
            self.paint.over(tone, mark),
            limit.name,
            limit.value,
            self.paint
                .over(tone, &format!("{:>18}", many(limit.connections)))
        );
        self.line(&line);
        let evidence = format!(
            "{}. [{}]",
            limit.evidence.trim_end_matches('.'),
            limit.read_from
        );
        self.paragraph("", &evidence, Some(Tone::Faint));
        if judged.concern != Concern::None || is_first_stop {
            self.paragraph("→ ", &limit.remedy, None);
        }
    }

    fn remarks(&mut self, remarks: &[Remark]) {
        self.title("What else was looked at");
        for remark in remarks {
            let (mark, tone) = match remark.weight {
                Weight::Note => ("✓", Tone::Good),
                Weight::Warning => ("!", Tone::Warning),
            };
            let line = format!("{} {}", self.paint.over(tone, mark), remark.name);
            self.line(&line);
            let finding = remark.finding.trim_end_matches('.');
            if remark.weight == Weight::Warning {
                let finding = format!("{finding}. [{}]", remark.read_from);
                self.paragraph("", &finding, Some(Tone::Faint));
                self.paragraph("→ ", &remark.consequence, None);
            } else {
                let all = format!("{finding}. {} [{}]", remark.consequence, remark.read_from);
                self.paragraph("", &all, Some(Tone::Faint));
            }
        }
    }

    fn changes(&mut self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        self.title("What doctor --fix would change");
        self.out.push_str(&listed(changes));
    }
}

/// Changes, one a line, and why.
#[must_use]
pub fn listed(changes: &[Change]) -> String {
    let mut out = String::new();
    for change in changes {
        let name = change.setting.name();
        let from = if change.from.is_empty() {
            "(empty)"
        } else {
            &change.from
        };
        let _ = writeln!(out, "  {name:<36}{from:>14}  ->  {}", change.to);
        let _ = writeln!(out, "{:INDENT$}because {}", "", change.why);
    }
    out
}

/// Kernels say "no limit" with numbers that nobody wants to read.
fn many(connections: u64) -> String {
    if connections >= 1_000_000_000_000 {
        "no end".into()
    } else {
        count(connections)
    }
}

fn ends(role: Role) -> String {
    match role {
        Role::BothEnds => "Both ends".into(),
        Role::Server => "The server's ends".into(),
        Role::Crowd(_) => "The clients' ends".into(),
        Role::Proxy(_) => "A proxy's ends".into(),
    }
}

fn program(program: Program) -> String {
    match program {
        Program::Myriad => "held by Myriad".into(),
        Program::Ordinary { processes: 1 } => "held by one ordinary process".into(),
        Program::Ordinary { processes } => {
            format!("held by {} ordinary processes", count(processes))
        }
    }
}
