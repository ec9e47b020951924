//! The examination as a person reads it.

use crate::budget::{Concern, Effect};
use crate::change_list::{ChangeList, WIDTH_MIN};
use crate::changes::Change;
use crate::examination::{Examination, JudgedLimit};
use crate::limits::{Program, Role};
use crate::remarks::{Remark, Weight};
use myriad_layout::{Cell, Column, Paint, Table, Tone, WIDTH_MAX, wrapped};
use myriad_units::{bytes, count, counted};

/// Where explanations begin.
const INDENT: usize = 4;
/// The columns of every group of limits: name, value, and the connections it ends at.
const LIMIT_COLUMNS: [Column; 3] = [
    Column::TEXT.at_least(34),
    Column::TEXT.at_least(18),
    Column::NUMBER.at_least(18),
];

/// All of it: the answer, the limits by what they do, the remarks, and what could be changed; in lines of at most
/// `width` columns and never more than [`WIDTH_MAX`].
#[must_use]
pub fn text(examination: &Examination, paint: Paint, width: usize) -> String {
    let mut report = Report {
        out: String::new(),
        paint,
        width: width.clamp(WIDTH_MIN, WIDTH_MAX),
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
    width: usize,
}

impl Report {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// The lines of a paragraph, indented; `mark` stands before the first.
    fn paragraph(&self, mark: &str, text: &str, tone: Option<Tone>) -> Vec<String> {
        let indent = INDENT + mark.chars().count();
        let lines = wrapped(text, self.width - indent).into_iter().enumerate();
        lines
            .map(|(index, line)| {
                let before = if index == 0 {
                    format!("{:INDENT$}{mark}", "")
                } else {
                    " ".repeat(indent)
                };
                let line = tone.map_or_else(|| line.clone(), |tone| self.paint.over(tone, &line));
                format!("{before}{line}")
            })
            .collect()
    }

    /// Such a paragraph below the last line.
    fn explain(&mut self, mark: &str, text: &str, tone: Option<Tone>) {
        for line in self.paragraph(mark, text, tone) {
            self.line(&line);
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
        for line in wrapped(&examination.headline, self.width) {
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
        let mut table = Table::new(&LIMIT_COLUMNS);
        table.row([title, "", column].map(|head| Cell::toned(head, Tone::Strong)));
        for judged in chosen {
            self.limit(
                &mut table,
                judged,
                judged.limit.name == examination.first_stop,
            );
        }
        self.line("");
        self.out.push_str(&table.draw(0, self.width, self.paint));
    }

    fn limit(&self, table: &mut Table, judged: &JudgedLimit, is_first_stop: bool) {
        let limit = &judged.limit;
        let (mark, tone) = match judged.concern {
            Concern::None => ('✓', Tone::Good),
            Concern::Worse => ('!', Tone::Warning),
            Concern::Stops => ('✗', Tone::Bad),
        };
        table.row([
            Cell::marked(mark, tone, limit.name),
            limit.value.as_str().into(),
            Cell::toned(many(limit.connections), tone),
        ]);
        let evidence = format!(
            "{}. [{}]",
            limit.evidence.trim_end_matches('.'),
            limit.read_from
        );
        let mut notes = self.paragraph("", &evidence, Some(Tone::Faint));
        if judged.concern != Concern::None || is_first_stop {
            notes.extend(self.paragraph("→ ", &limit.remedy, None));
        }
        notes.into_iter().for_each(|note| table.note(note));
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
                self.explain("", &finding, Some(Tone::Faint));
                self.explain("→ ", &remark.consequence, None);
            } else {
                let all = format!("{finding}. {} [{}]", remark.consequence, remark.read_from);
                self.explain("", &all, Some(Tone::Faint));
            }
        }
    }

    fn changes(&mut self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        self.title("What doctor --fix would change");
        let mut list = ChangeList::new(self.width);
        for change in changes {
            list.add(
                change.setting.name(),
                &change.from,
                &change.to,
                "",
                &change.why,
            );
        }
        self.out.push_str(&list.draw());
    }
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
