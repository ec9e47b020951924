//! Accounts of clients: a table with a row for each of them, from a CSV file.

use std::fmt;

/// Largest table, in bytes.
pub(crate) const ACCOUNTS_BYTES_MAX: u64 = 256 << 20;

/// Rows that clients take in turn. The first line of the file names the columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    columns: Vec<String>,
    /// The cells, row by row, one behind the other.
    text: String,
    /// By cell: where it ends in `text`.
    ends: Vec<u32>,
}

/// A file that is no table of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountsError {
    /// It is no CSV, or its rows have different lengths: what the reader says.
    Csv(String),
    /// It has no row below the names of its columns.
    Empty,
    /// It is larger than is read.
    Large,
}

impl fmt::Display for AccountsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csv(said) => write!(f, "this is no CSV: {said}"),
            Self::Empty => f.write_str(
                "it has no account; write the names of the columns first, then a row for each account",
            ),
            Self::Large => write!(f, "it has more than {ACCOUNTS_BYTES_MAX} bytes"),
        }
    }
}

impl Accounts {
    /// Reads a CSV text (RFC 4180) whose first line names the columns.
    ///
    /// # Errors
    /// It is no CSV, has no rows, or is too large.
    pub fn parse(csv: &str) -> Result<Self, AccountsError> {
        if csv.len() as u64 > ACCOUNTS_BYTES_MAX {
            return Err(AccountsError::Large);
        }
        let refused = |error: csv::Error| AccountsError::Csv(error.to_string());
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(csv.as_bytes());
        let names = reader.headers().map_err(refused)?;
        let mut accounts = Self {
            columns: names.iter().map(str::to_owned).collect(),
            ..Self::default()
        };
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(refused)? {
            for cell in &record {
                accounts.text.push_str(cell);
                let end = u32::try_from(accounts.text.len()).map_err(|_| AccountsError::Large)?;
                accounts.ends.push(end);
            }
        }
        match accounts.ends.is_empty() {
            true => Err(AccountsError::Empty),
            false => Ok(accounts),
        }
    }

    /// The index of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The names of the columns.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What the account of a terminal of the run has in a column. The terminals take the rows in turn.
    pub(crate) fn cell(&self, terminal: u64, column: usize) -> &str {
        let columns = self.columns.len();
        let rows = (self.ends.len() / columns) as u64;
        let row = usize::try_from(terminal % rows).expect("less than the rows");
        let cell = row * columns + column;
        let start = cell.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[cell] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_take_the_rows_in_turn() {
        let csv = "user, room\nann,\"a, or b\"\nbob,\n";
        let accounts = Accounts::parse(csv).expect("a table");
        let (user, room) = (accounts.column("user"), accounts.column("room"));
        let (user, room) = (user.expect("there"), room.expect("there"));
        let rows = [0, 1, 2]
            .map(|terminal| (accounts.cell(terminal, user), accounts.cell(terminal, room)));
        assert_eq!(rows, [("ann", "a, or b"), ("bob", ""), ("ann", "a, or b")]);
        assert_eq!(accounts.column("age"), None);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert_eq!(Accounts::parse("user\n"), Err(AccountsError::Empty));
        assert_eq!(Accounts::parse(""), Err(AccountsError::Empty));
        let ragged = Accounts::parse("a,b\n1\n");
        assert!(matches!(ragged, Err(AccountsError::Csv(_))), "{ragged:?}");
    }
}
