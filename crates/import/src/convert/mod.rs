//! From the layout of version 6 to a file of ours, row by row of the table.

mod channels;
mod listening;
mod proxies;
mod transports;

use crate::layout::{self, Layout};
use crate::output::Output;
use crate::report::{Fate, Note, shown};
use crate::source::{Node, Place, Value};
use crate::table::{
    Form, How, LISTS, PRO_KEYS, PROXY_PLACES, Row, Scope, TOKEN_PLACES, UNNAMED, default_node,
};
use crate::value::{Change, flag, literal, plain};
use crate::{Fault, Files};
use std::collections::BTreeSet;

/// A conversion under way.
pub(crate) struct Import<'f> {
    /// What has not been converted yet.
    pub(crate) tree: Node,
    pub(crate) output: Output,
    pub(crate) notes: Vec<Note>,
    pub(crate) faults: Vec<Fault>,
    files: Files<'f>,
}

impl<'f> Import<'f> {
    /// Converts a tree in the layout of version 6.
    pub(crate) fn run(tree: Node, layout: Layout, files: Files<'f>) -> Self {
        let mut import = Self {
            tree,
            output: Output::default(),
            notes: Vec::new(),
            faults: Vec::new(),
            files,
        };
        import.listening();
        import.transports();
        import.rows(Scope::Top, "");
        import.pings();
        import.open_api();
        import.tokens();
        let usable = import.proxies();
        import.channels(&usable);
        import.methods(&usable);
        import.leftovers(layout);
        import
    }

    /// All rows of a scope at a place, which is called the same in version 6 and here.
    fn rows(&mut self, scope: Scope, place: &str) {
        for row in scope.rows() {
            self.row(row, place, place);
        }
    }

    /// One row, from a place in version 6 to one here.
    fn row(&mut self, row: &'static Row, place: &str, to: &str) {
        // What version 6 has not is still called as in version 5.
        let names: Vec<&str> = match row.v6 {
            "" => row.v5_names().collect(),
            v6 => vec![v6],
        };
        match row.how {
            How::Ruled(_) => {}
            How::Part => {
                for name in names {
                    // At the top version 5 has switches where version 6 has tables.
                    let path = join(place, name);
                    let node = self.tree.find(&path).map(|node| &node.value);
                    if path.contains('.') || matches!(node, Some(Value::Table(_))) {
                        self.idle(&path);
                    }
                }
            }
            How::Gone(meaning) => self.gone(row, place, &names, meaning, false),
            How::Decide(meaning) => self.gone(row, place, &names, meaning, true),
            How::Same => self.plain_row(row, place, to, None),
            How::Differs(meaning) => self.plain_row(row, place, to, Some(meaning)),
        }
    }

    /// An option that is not there. At its default nobody misses it.
    fn gone(&mut self, row: &Row, place: &str, names: &[&str], meaning: &str, decides: bool) {
        for name in names {
            let Some(node) = self.tree.take(&join(place, name)) else {
                continue;
            };
            let Some(is_default) = self.is_default(row, &node) else {
                continue;
            };
            match (is_default, decides) {
                (true, _) => self.unused(Some(&node)),
                (false, true) => self.undecided(&node, meaning),
                (false, false) => self.missing(&node, meaning),
            }
        }
    }

    /// Whether a value is the default of its row; nothing if it cannot be read.
    fn is_default(&mut self, row: &Row, node: &Node) -> Option<bool> {
        if row.form == Form::Any {
            let is_empty = match &node.value {
                Value::List(items) => items.iter().all(is_switched_off),
                Value::Table(entries) => entries.is_empty(),
                Value::Text(text) => text.is_empty(),
                _ => false,
            };
            return Some(is_empty);
        }
        let read = self.literal(row.form, node)?;
        Some(read.0 == default_literal(row))
    }

    /// Takes a value over under its row's name.
    fn plain_row(&mut self, row: &Row, place: &str, to: &str, meaning: Option<&str>) {
        let Some(node) = &self.tree.take(&join(place, row.v6)) else {
            return;
        };
        let Some((toml, change)) = self.literal(row.form, node) else {
            return;
        };
        let ours = join(to, row.ours);
        let is_default = toml == default_literal(row);
        match change {
            None | Some(Change::Default) if is_default => return self.unused(Some(node)),
            Some(Change::Default) => {
                let note = Note::of(node, Fate::Changed);
                self.notes.push(note.meaning(Change::Default.words()));
                return;
            }
            _ => {}
        }
        let meaning = change.map(Change::words).or(meaning);
        let why = change.map(|change| format!("{}: {}", shown(&node.name), change.words()));
        self.output.set(&ours, toml, why.as_deref());
        match meaning {
            Some(meaning) => self.changed(node, &ours, meaning),
            None => self.taken(Some(node), &ours),
        }
    }

    /// A value that only code decides about, in the form of its row.
    fn ruled(&mut self, scope: Scope, v6: &str, node: &Node) -> Option<String> {
        let row = scope.row(v6)?;
        Some(self.literal(row.form, node)?.0)
    }

    /// A value in its form. What it cannot have is a fault.
    pub(crate) fn literal(&mut self, form: Form, node: &Node) -> Option<(String, Option<Change>)> {
        match literal(form, node) {
            Ok(read) => Some((read.toml, read.change)),
            Err(refused) => {
                self.fault(node, refused.shown, refused.advice);
                None
            }
        }
    }

    pub(crate) fn fault(
        &mut self,
        node: &Node,
        shown: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.faults.push(Fault {
            name: node.name.clone(),
            place: node.place.clone(),
            value: shown.into(),
            advice: advice.into(),
        });
    }

    /// Drops what only matters with something else.
    pub(crate) fn idle(&mut self, path: &str) {
        if let Some(node) = self.tree.take(path) {
            let mut leaves = Vec::new();
            node.leaves(&mut leaves);
            let notes = leaves.into_iter().map(|node| Note::of(node, Fate::Idle));
            self.notes.extend(notes);
        }
    }

    /// A switch that is taken out of the tree, with its place.
    pub(crate) fn take_flag(&mut self, path: &str) -> (bool, Option<Node>) {
        let Some(node) = self.tree.take(path) else {
            return (false, None);
        };
        match flag(&node.value) {
            Some(is_on) => (is_on, Some(node)),
            None => {
                self.literal(Form::Flag, &node);
                (false, Some(node))
            }
        }
    }

    /// A text that is taken out of the tree; empty if it is not there.
    pub(crate) fn take_text(&mut self, path: &str) -> (String, Option<Node>) {
        let Some(node) = self.tree.take(path) else {
            return (String::new(), None);
        };
        match plain(&node.value) {
            Some(text) => (text.trim().to_owned(), Some(node)),
            None => {
                self.literal(Form::Secret, &node);
                (String::new(), Some(node))
            }
        }
    }

    /// Says that a value was taken over, if it was there.
    pub(crate) fn taken(&mut self, node: Option<&Node>, ours: &str) {
        if let Some(node) = node {
            self.notes.push(Note::of(node, Fate::Taken).at(ours));
        }
    }

    /// Says that a value was taken over and means something else.
    pub(crate) fn changed(&mut self, node: &Node, ours: &str, meaning: &str) {
        self.notes
            .push(Note::of(node, Fate::Changed).at(ours).meaning(meaning));
    }

    /// Says that a value is not there, and what that means.
    pub(crate) fn missing(&mut self, node: &Node, meaning: &str) {
        self.notes
            .push(Note::of(node, Fate::Missing).meaning(meaning));
    }

    /// The same, where the operator has to decide.
    pub(crate) fn undecided(&mut self, node: &Node, meaning: &str) {
        self.notes
            .push(Note::of(node, Fate::Missing).meaning(meaning).decide());
    }

    /// Says what becomes of a default that nobody has set.
    pub(crate) fn unset(&mut self, fate: Fate, name: &str, ours: &str, meaning: &str) {
        self.notes.push(Note {
            fate,
            name: name.to_owned(),
            place: Place::Nowhere,
            ours: Some(ours.to_owned()),
            meaning: Some(meaning.to_owned()),
            needs_decision: false,
        });
    }

    /// Says that a value changes nothing, if it was there.
    pub(crate) fn unused(&mut self, node: Option<&Node>) {
        if let Some(node) = node {
            self.notes.push(Note::of(node, Fate::Idle));
        }
    }

    /// Nobody is asked for a key there, and here a key beside it is a contradiction.
    fn open_api(&mut self) {
        if self.output.is_on("http_api.insecure") {
            self.retract("http_api.key", Fate::Idle, None);
        }
    }

    /// Takes a line back, and says what became of its option instead.
    fn retract(&mut self, ours: &str, fate: Fate, meaning: Option<&str>) {
        if self.output.remove(ours) {
            self.tell_anew(|written| written == ours, fate, meaning);
        }
    }

    /// Says something else of the options whose lines have been taken back.
    fn tell_anew(&mut self, is_meant: impl Fn(&str) -> bool, fate: Fate, meaning: Option<&str>) {
        let notes = self.notes.iter_mut();
        for note in notes.filter(|note| note.ours.as_deref().is_some_and(&is_meant)) {
            note.fate = fate;
            note.ours = None;
            note.meaning = meaning.map(str::to_owned);
            note.needs_decision = fate == Fate::Missing;
        }
    }

    fn tokens(&mut self) {
        for place in TOKEN_PLACES {
            let is_other = place.ends_with("subscription_token");
            let is_on = self.output.is_on("client.subscription_token.enabled");
            let is_off = is_other && !is_on;
            if is_off {
                // Its keys do nothing there, and a warning here.
                self.idle(place);
                continue;
            }
            self.rows(Scope::Token, place);
            self.key_set(place);
            self.previous_key(place);
        }
    }

    /// The keys of a set replace those in the file. There these do nothing then, and here they are a contradiction.
    fn key_set(&mut self, place: &str) {
        let endpoint = join(place, "jwks_public_endpoint");
        if self.output.value(&endpoint).is_none() {
            return;
        }
        for key in [
            "hmac_secret_key",
            "hmac_previous_secret_key",
            "rsa_public_key",
            "ecdsa_public_key",
        ] {
            self.retract(&join(place, key), Fate::Idle, None);
        }
    }

    /// Its time without a key does nothing there, and is a mistake here.
    fn previous_key(&mut self, place: &str) {
        let previous = format!("{place}.hmac_previous_secret_key");
        if self.output.value(&previous).is_none() {
            self.retract(&format!("{previous}_valid_until"), Fate::Idle, None);
        }
    }

    /// What no row has taken.
    fn leftovers(&mut self, layout: Layout) {
        for key in PRO_KEYS {
            if let Some(node) = self.tree.take(key) {
                let meaning = "an option of Centrifugo PRO, which is not there";
                self.undecided(&node, meaning);
            }
        }
        let tree = std::mem::take(&mut self.tree);
        let mut leaves = Vec::new();
        tree.leaves(&mut leaves);
        let tables = tables();
        for node in leaves {
            let name = node.name.to_ascii_lowercase();
            if layout == Layout::V6 && layout::is_v5(&name) {
                self.missing(
                    node,
                    "an option of version 5, which version 6 does not read",
                );
            } else if LISTS.iter().any(|(path, _)| *path == name) {
                self.fault(node, "(no list)", "write a list of tables");
            } else if tables.contains(&*name) {
                self.fault(node, "(no table)", "write a table of options");
            } else {
                self.notes.push(Note::of(node, Fate::Unknown));
            }
        }
    }
}

/// Paths of tables in version 6.
fn tables() -> BTreeSet<&'static str> {
    let rows = Scope::Top.rows().map(|row| row.v6);
    let places = PROXY_PLACES.into_iter().chain(TOKEN_PLACES);
    let places = places.chain(UNNAMED.map(|(place, _)| place));
    let mut tables: BTreeSet<_> = places.clone().collect();
    for path in rows.chain(places) {
        tables.extend(path.match_indices('.').map(|(end, _)| &path[..end]));
    }
    tables
}

/// Whether an item of a list says itself that it does nothing.
fn is_switched_off(item: &Node) -> bool {
    let switch = item.find("enabled");
    switch.is_some_and(|switch| flag(&switch.value) == Some(false))
}

/// The default of a row at Centrifugo, as TOML.
fn default_literal(row: &Row) -> String {
    let read = literal(row.form, &default_node(row.default));
    read.map(|read| read.toml).unwrap_or_default()
}

/// A path below another one, which may be the top.
pub(crate) fn join(place: &str, name: &str) -> String {
    match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}
