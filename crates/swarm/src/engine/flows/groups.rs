//! Who belongs to which group.

use super::accounts::Accounts;
use crate::measure::figures::float;
use myriad_units::{count, counted};
use std::collections::HashMap;
use std::fmt;

/// How clients are dealt out to groups.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupRule {
    /// To so many groups, of nearly the same size.
    Even(u32),
    /// To so many, whose sizes fall as the number of the group to the power of the exponent.
    Zipf(u32, f64),
    /// To groups of these sizes, which add up to the crowd.
    Sizes(Vec<u32>),
    /// Those whose accounts have the same in this column are a group.
    Column(String),
}

/// Most groups.
pub(crate) const GROUPS_MAX: u32 = 1 << 20;

/// Why clients cannot be dealt out to groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupsMisfit {
    /// To so many groups: there are fewer clients, there is no group, or there are more than 1,048,576.
    Count {
        /// Clients of the run.
        clients: u32,
        /// Groups that they were to be dealt out to.
        groups: u32,
        /// The most that there may be.
        most: u32,
    },
    /// The sizes of the groups do not add up to the clients.
    Sizes {
        /// Clients of the run.
        clients: u32,
        /// Groups whose sizes are given.
        groups: usize,
        /// The sum of the sizes.
        sum: u64,
    },
    /// More sizes are given, or more different texts are in the column, than there may be groups: the key.
    TooMany(&'static str),
    /// The accounts have no such column: its name, and their columns.
    NoColumn(String, Vec<String>),
    /// Members of one group would be on several machines.
    Split,
}

impl GroupsMisfit {
    /// The key of the scenario that it is about.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Count { .. } => "groups.count",
            Self::Sizes { .. } => "groups.sizes",
            Self::TooMany(key) => key,
            Self::NoColumn(..) => "groups.column",
            Self::Split => "groups",
        }
    }

    /// What is wrong, and what to change. `setting` sets the number of groups to N.
    pub(crate) fn said(&self, setting: &str) -> String {
        match self {
            Self::Count {
                clients,
                groups,
                most,
            } => {
                let dealt = format!(
                    "{} cannot be dealt out to {}; give {setting} with N from 1 to {}",
                    counted(u64::from(*clients), "client"),
                    counted(u64::from(*groups), "group"),
                    count(u64::from(*most))
                );
                match groups > clients {
                    true => dealt + ", or more clients",
                    false => dealt,
                }
            }
            Self::Sizes {
                clients,
                groups,
                sum,
            } => format!(
                "{} cannot be dealt out to {} whose sizes add up to {}; let groups.sizes add up to the number of clients, \
                 or give as many clients",
                counted(u64::from(*clients), "client"),
                counted(*groups as u64, "group"),
                count(*sum)
            ),
            Self::TooMany(key) => format!(
                "{key} makes more than {} groups, which is the most; give fewer",
                count(u64::from(GROUPS_MAX))
            ),
            Self::NoColumn(name, known) if known.is_empty() => {
                format!(
                    "there are no accounts with a column `{name}`; write [accounts] with their file"
                )
            }
            Self::NoColumn(name, known) => format!(
                "the accounts have no column `{name}`; choose among {}",
                known.join(", ")
            ),
            Self::Split => {
                "a group would be on several agents, and groups stay whole; give fewer --agents"
                    .to_owned()
            }
        }
    }
}

impl fmt::Display for GroupsMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said("groups.count = N"))
    }
}

impl GroupRule {
    /// Why so many clients cannot be dealt out by this rule, where [`Groups::deal`] says that they cannot.
    pub(crate) fn misfit(&self, clients: u32, accounts: &Accounts) -> GroupsMisfit {
        let most = GROUPS_MAX.min(clients);
        match self {
            Self::Even(groups) | Self::Zipf(groups, _) if !(1..=most).contains(groups) => {
                GroupsMisfit::Count {
                    clients,
                    groups: *groups,
                    most,
                }
            }
            Self::Sizes(sizes) if sizes.len() > GROUPS_MAX as usize => {
                GroupsMisfit::TooMany("groups.sizes")
            }
            Self::Sizes(sizes) if sum_of(sizes) != u64::from(clients) => GroupsMisfit::Sizes {
                clients,
                groups: sizes.len(),
                sum: sum_of(sizes),
            },
            Self::Column(name) if accounts.column(name).is_none() => {
                GroupsMisfit::NoColumn(name.clone(), accounts.columns().to_vec())
            }
            Self::Column(_) => GroupsMisfit::TooMany("groups.column"),
            Self::Even(_) | Self::Zipf(..) | Self::Sizes(_) => GroupsMisfit::Split,
        }
    }
}

/// The groups of a run. Eight bytes a terminal.
#[derive(Debug)]
pub(crate) struct Groups {
    /// By terminal of the run: its group, and its place among the members.
    members: Vec<(u32, u32)>,
    sizes: Vec<u32>,
}

impl Groups {
    /// Deals so many terminals out, who have these accounts. `parts` are the terminals of each machine, where groups are not to be
    /// split between machines; one for all else. None if the rule does not fit them.
    pub(crate) fn deal(
        rule: &GroupRule,
        terminals: u32,
        accounts: &Accounts,
        parts: &[u32],
    ) -> Option<Self> {
        if let GroupRule::Column(name) = rule {
            let column = accounts.column(name)?;
            return Self::by_text(terminals, |terminal| accounts.cell(terminal, column));
        }
        let sizes = Self::sizes(rule, terminals)?;
        let mut members = Vec::with_capacity(terminals as usize);
        let mut first = 0;
        for part in parts {
            let until = members.len() + *part as usize;
            let count = whole_groups(&sizes[first..], *part)?;
            // One of each group in turn, so that consecutive terminals are in different groups, and threads have a share of each.
            let mut place = 0;
            let mut open: Vec<usize> = (first..first + count).collect();
            while members.len() < until {
                open.retain(|group| sizes[*group] > place);
                let next = open.iter().map(|group| (u32::try_from(*group), place));
                members.extend(next.map(|(group, place)| (group.expect("few"), place)));
                place += 1;
            }
            first += count;
        }
        (members.len() == terminals as usize).then_some(Self { members, sizes })
    }

    /// How many terminals each group has, where the rule says it. None if it does not fit so many terminals.
    pub(crate) fn sizes(rule: &GroupRule, terminals: u32) -> Option<Vec<u32>> {
        match rule {
            GroupRule::Even(count) => weighted(*count, terminals, |_| 1.0),
            GroupRule::Zipf(count, exponent) => weighted(*count, terminals, |group| {
                (float(u64::from(group)) + 1.0).powf(-exponent)
            }),
            GroupRule::Sizes(sizes) => {
                let is_whole = sum_of(sizes) == u64::from(terminals);
                let fits = is_whole && sizes.len() <= GROUPS_MAX as usize;
                fits.then(|| sizes.clone())
            }
            GroupRule::Column(_) => None,
        }
    }

    /// Groups of terminals with the same text, numbered as they come first.
    fn by_text<'a>(terminals: u32, text: impl Fn(u64) -> &'a str) -> Option<Self> {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut sizes: Vec<u32> = Vec::new();
        let members = (0..u64::from(terminals)).map(|terminal| {
            let next = u32::try_from(sizes.len()).expect("no more than terminals");
            let group = *numbers.entry(text(terminal)).or_insert(next);
            if group == next {
                sizes.push(0);
            }
            let size = &mut sizes[group as usize];
            *size += 1;
            (group, *size - 1)
        });
        let members: Vec<(u32, u32)> = members.collect();
        (sizes.len() <= GROUPS_MAX as usize).then_some(Self { members, sizes })
    }

    /// The group of a terminal of the run, and its place in it.
    pub(crate) fn of(&self, terminal: u64) -> (u32, u32) {
        self.members[usize::try_from(terminal).expect("terminals are at most 2^32")]
    }

    pub(crate) fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Terminals of the run.
    pub(crate) fn terminals(&self) -> u32 {
        u32::try_from(self.members.len()).expect("terminals are at most 2^32")
    }

    /// Members of a group.
    pub(crate) fn size(&self, group: u32) -> u32 {
        self.sizes[group as usize]
    }
}

fn sum_of(sizes: &[u32]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).sum()
}

/// How many of the groups have exactly so many terminals together. Empty ones at the end count too.
fn whole_groups(sizes: &[u32], terminals: u32) -> Option<usize> {
    let mut sum = 0_u64;
    let mut count = 0;
    for size in sizes {
        if sum + u64::from(*size) > u64::from(terminals) {
            break;
        }
        sum += u64::from(*size);
        count += 1;
    }
    (sum == u64::from(terminals)).then_some(count)
}

/// Sizes by weight that add up exactly.
fn weighted(count: u32, terminals: u32, weight: impl Fn(u32) -> f64) -> Option<Vec<u32>> {
    if !(1..=GROUPS_MAX.min(terminals)).contains(&count) {
        return None;
    }
    let whole: f64 = (0..count).map(&weight).sum();
    let (mut sum, mut given) = (0.0, 0);
    let sizes = (0..count).map(|group| {
        sum += weight(group);
        let until = myriad_units::truncate(sum / whole * f64::from(terminals) + 0.5);
        let until = u32::try_from(until).unwrap_or(u32::MAX).min(terminals);
        let size = until - given;
        given = until;
        size
    });
    let mut sizes: Vec<u32> = sizes.collect();
    // Rounding errors of the sum.
    sizes[0] += terminals - given;
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_place_in_one_group() {
        let accounts = Accounts::parse("room\na\nb\na\nc\n").expect("a table");
        for rule in [
            GroupRule::Column("room".to_owned()),
            GroupRule::Even(7),
            GroupRule::Zipf(30, 1.0),
            GroupRule::Sizes(vec![500, 0, 400, 100]),
        ] {
            let groups = Groups::deal(&rule, 1000, &accounts, &[1000]).expect("it fits");
            let mut seen: Vec<u32> = vec![0; groups.count()];
            for terminal in 0..1000 {
                let (group, place) = groups.of(terminal);
                assert_eq!(place, seen[group as usize], "in their order");
                seen[group as usize] += 1;
            }
            assert_eq!(seen, groups.sizes, "{rule:?}");
        }
    }

    #[test]
    fn groups_are_not_split_between_machines() {
        let accounts = Accounts::default();
        let rule = GroupRule::Sizes(vec![5, 1, 0, 3, 1]);
        let groups = Groups::deal(&rule, 10, &accounts, &[6, 4]).expect("it fits");
        let of: Vec<u32> = (0..10).map(|terminal| groups.of(terminal).0).collect();
        assert_eq!(of, [0, 1, 0, 0, 0, 0, 3, 4, 3, 3]);
        assert!(Groups::deal(&rule, 10, &accounts, &[7, 3]).is_none());
        assert!(Groups::deal(&rule, 10, &accounts, &[6, 3]).is_none());
    }

    #[test]
    fn sizes_are_as_the_rule_says() {
        let accounts = Accounts::parse("room\na\nb\na\nc\n").expect("a table");
        let deal = |rule| Groups::deal(&rule, 100, &accounts, &[100]);
        let sizes = |rule| deal(rule).map(|groups| groups.sizes);
        let column = |name: &str| sizes(GroupRule::Column(name.to_owned()));
        assert_eq!(column("room"), Some(vec![50, 25, 25]));
        assert_eq!(column("user"), None);
        assert_eq!(sizes(GroupRule::Even(3)), Some(vec![33, 34, 33]));
        let zipf = sizes(GroupRule::Zipf(4, 1.0)).expect("it fits");
        assert_eq!(zipf, [48, 24, 16, 12]);
        assert_eq!(sizes(GroupRule::Even(0)), None);
        assert_eq!(sizes(GroupRule::Even(101)), None);
        assert_eq!(sizes(GroupRule::Sizes(vec![99])), None);
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_figures() {
        let accounts = Accounts::parse("room,user\na,x\nb,y\n").expect("a table");
        let said = |rule: GroupRule, clients, accounts: &Accounts| {
            let misfit = rule.misfit(clients, accounts);
            assert!(Groups::deal(&rule, clients, accounts, &[clients]).is_none());
            (misfit.key(), misfit.said("--var rooms=N"))
        };
        for (rule, clients, key, wanted) in [
            (
                GroupRule::Even(880),
                500,
                "groups.count",
                "500 clients cannot be dealt out to 880 groups; give --var rooms=N with N from 1 to 500, or more clients",
            ),
            (
                GroupRule::Zipf(2, 1.0),
                1,
                "groups.count",
                "1 client cannot be dealt out to 2 groups; give --var rooms=N with N from 1 to 1, or more clients",
            ),
            (
                GroupRule::Even(0),
                500,
                "groups.count",
                "500 clients cannot be dealt out to 0 groups; give --var rooms=N with N from 1 to 500",
            ),
            (
                GroupRule::Even(GROUPS_MAX + 1),
                2_000_000,
                "groups.count",
                "2,000,000 clients cannot be dealt out to 1,048,577 groups; give --var rooms=N with N from 1 to 1,048,576",
            ),
            (
                GroupRule::Sizes(vec![500, 300, 100]),
                1_000,
                "groups.sizes",
                "1,000 clients cannot be dealt out to 3 groups whose sizes add up to 900; let groups.sizes add up to the number of clients, \
                 or give as many clients",
            ),
            (
                GroupRule::Column("rooms".to_owned()),
                10,
                "groups.column",
                "the accounts have no column `rooms`; choose among room, user",
            ),
        ] {
            let found = said(rule, clients, &accounts);
            assert_eq!(found, (key, wanted.to_owned()));
        }
        let none = said(
            GroupRule::Column("room".to_owned()),
            10,
            &Accounts::default(),
        );
        assert!(none.1.contains("write [accounts]"), "{}", none.1);
        let misfit = GroupRule::Even(880).misfit(500, &accounts);
        assert!(
            misfit.to_string().contains("give groups.count = N"),
            "{misfit}"
        );
        // What fits the crowd may not fit its machines.
        assert_eq!(
            GroupRule::Sizes(vec![5, 5]).misfit(10, &accounts),
            GroupsMisfit::Split
        );
    }
}
