use super::journal::{Intent, Record};
use super::*;
use crate::changes::{Change, Setting};
use crate::testing::Folder;
use std::collections::BTreeMap;

/// What `fix` changes on a machine made of files, with a journal beside them.
impl Folder {
    fn to_fix(name: &str) -> Self {
        Self::with(
            &format!("fix-{name}"),
            &[
                ("proc/sys/kernel/random/boot_id", "boot-1\n"),
                ("proc/sys/net/core/somaxconn", "128\n"),
                ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
                ("proc/sys/net/ipv4/ip_local_reserved_ports", "\n"),
                (
                    "etc/sysctl.d/90-myriad.conf",
                    "net.core.somaxconn = 64\nvm.swappiness = 1\n",
                ),
            ],
        )
    }

    fn root(&self) -> Root {
        Root::new(&self.0)
    }

    fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// Everything but the journal.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path != self.journal() {
                    let text = std::fs::read_to_string(&path).unwrap();
                    files.insert(path, text);
                }
            }
        }
        files
    }

    fn fix(&self, changes: &[Change], persistence: Persistence) -> Plan {
        let plan = Plan::new(
            &self.root(),
            changes,
            persistence,
            Some("nginx.service"),
            &[],
        )
        .unwrap();
        let mut journal = Journal::open(&self.journal()).unwrap();
        apply(&self.root(), &plan.steps, &mut journal, |step, applied| {
            assert!(matches!(applied, Applied::Made), "{step:?}: {applied:?}");
        })
        .unwrap();
        plan
    }

    /// Applies what may be refused in part.
    fn outcomes(&self, plan: &Plan) -> Vec<Applied> {
        let mut journal = Journal::open(&self.journal()).unwrap();
        let mut outcomes = Vec::new();
        apply(&self.root(), &plan.steps, &mut journal, |_, applied| {
            outcomes.push(applied);
        })
        .unwrap();
        outcomes
    }

    fn undo(&self) -> (Vec<Restored>, bool) {
        let journal = Journal::open_existing(&self.journal()).unwrap().unwrap();
        let undo = Undo::new(self.root(), journal);
        let listed = undo.entries().cloned().collect();
        (listed, undo.run(|_, done| done.unwrap()).unwrap())
    }
}

fn change(setting: Setting, from: &str, to: &str) -> Change {
    Change {
        setting,
        from: from.into(),
        to: to.into(),
        why: "of a test".into(),
    }
}

fn changes() -> [Change; 4] {
    [
        change(Setting::DescriptorLimit, "1024", "500000"),
        change(
            Setting::Sysctl("net.ipv4.ip_local_reserved_ports"),
            "",
            "8000",
        ),
        change(
            Setting::Sysctl("net.ipv4.ip_local_port_range"),
            "32768 60999",
            "1024 65535",
        ),
        change(Setting::Sysctl("net.core.somaxconn"), "128", "4096"),
    ]
}

#[test]
fn what_was_changed_is_taken_back_to_the_letter() {
    let folder = Folder::to_fix("round");
    let before = folder.files();
    let plan = folder.fix(&changes(), Persistence::Persistent);
    assert_eq!(plan.steps.len(), 5);
    assert!(plan.given.contains(&changes()[0]) && plan.steps[4].target.is_of_systemd());
    let changed = folder.files();
    let of = |path: &str| changed[&folder.0.join(path)].as_str();
    assert_eq!(of("proc/sys/net/core/somaxconn"), "4096\n");
    assert_eq!(
        of("etc/systemd/system/nginx.service.d/90-myriad.conf"),
        "# Written by myriad doctor.\n[Service]\nLimitNOFILE=500000\n"
    );
    let lasting = of("etc/sysctl.d/90-myriad.conf");
    assert!(
        lasting.starts_with("vm.swappiness = 1\n") && lasting.contains("somaxconn = 4096\n"),
        "{lasting}"
    );
    assert!(!lasting.contains("somaxconn = 64"), "{lasting}");
    let (listed, whole) = folder.undo();
    assert!(whole && listed.len() == 5);
    assert_eq!(folder.files(), before);
    assert!(!folder.journal().exists());
    assert!(!folder.0.join("etc/systemd/system/nginx.service.d").exists());
}

#[test]
fn what_will_be_written_is_a_table_with_reasons_below_its_rows() {
    let folder = Folder::to_fix("listed");
    let plan = Plan::new(
        &folder.root(),
        &changes(),
        Persistence::UntilReboot,
        None,
        &[],
    );
    assert_eq!(
        plan.unwrap().listed(80),
        "  \
  net.ipv4.ip_local_reserved_ports      (empty)  ->  8000
    because of a test
  net.ipv4.ip_local_port_range      32768 60999  ->  1024 65535
    because of a test
  net.core.somaxconn                        128  ->  4096
    because of a test
  by hand: ulimit -n 500000 in the shell that starts the program (or --unit NAME for a service)
"
    );
}

#[test]
fn two_fixes_are_taken_back_to_before_the_first() {
    let folder = Folder::to_fix("twice");
    let before = folder.files();
    folder.fix(&changes()[3..], Persistence::UntilReboot);
    let more = [change(
        Setting::Sysctl("net.core.somaxconn"),
        "4096",
        "9000",
    )];
    folder.fix(&more, Persistence::UntilReboot);
    let (listed, whole) = folder.undo();
    assert!(whole);
    let values: Vec<_> = listed.iter().map(|one| one.before.as_deref()).collect();
    assert_eq!(values, [Some("4096"), Some("128")]);
    assert_eq!(folder.files(), before);
}

/// Whatever byte of the journal a kill cut it at, and whether its change was made or not.
#[test]
fn a_journal_cut_anywhere_still_takes_everything_back() {
    let folder = Folder::to_fix("cut");
    let before = folder.files();
    folder.fix(&changes(), Persistence::Persistent);
    let whole = std::fs::read(folder.journal()).unwrap();
    let made = folder.files();
    for cut in 0..=whole.len() {
        let kept = &whole[..cut];
        // Changes whose line is whole may have been made; later ones cannot have been.
        let intents = String::from_utf8_lossy(kept);
        let intents = intents
            .split_inclusive('\n')
            .filter(|line| line.starts_with(r#"{"intent""#) && line.ends_with('\n'));
        let written: Vec<PathBuf> = intents
            .filter_map(|line| serde_json::from_str(line).ok())
            .map(|record| match record {
                Record::Intent(Intent { target, .. }) => target.path(&folder.root()),
                _ => unreachable!("chosen above"),
            })
            .collect();
        for (path, text) in &made {
            match before.get(path) {
                _ if written.contains(path) => std::fs::write(path, text).unwrap(),
                Some(old) => std::fs::write(path, old).unwrap(),
                None => drop(std::fs::remove_file(path)),
            }
        }
        std::fs::write(folder.journal(), kept).unwrap();
        let (_, whole) = folder.undo();
        assert!(whole, "cut at {cut}");
        assert_eq!(folder.files(), before, "cut at {cut}");
        std::fs::create_dir_all(folder.0.join("etc/systemd/system/nginx.service.d")).unwrap();
    }
}

#[test]
fn what_somebody_else_changed_since_is_left_alone() {
    let folder = Folder::to_fix("foreign");
    folder.fix(&changes()[1..], Persistence::UntilReboot);
    folder.write("proc/sys/net/core/somaxconn", "777\n");
    let (listed, whole) = folder.undo();
    assert!(!whole);
    assert_eq!(listed[0].undone, Undone::ChangedSince);
    assert_eq!(
        folder.files()[&folder.0.join("proc/sys/net/core/somaxconn")],
        "777\n"
    );
    let range = &folder.files()[&folder.0.join("proc/sys/net/ipv4/ip_local_port_range")];
    assert_eq!(range, "32768\t60999\n");
    // The rest of the journal stays, for when it is as we left it.
    assert!(folder.journal().exists());
    folder.write("proc/sys/net/core/somaxconn", "4096\n");
    assert!(folder.undo().1);
    assert!(!folder.journal().exists());
}

#[test]
fn a_reboot_ends_what_was_only_in_force() {
    let folder = Folder::to_fix("reboot");
    folder.fix(&changes()[3..], Persistence::UntilReboot);
    folder.write("proc/sys/kernel/random/boot_id", "boot-2\n");
    folder.write("proc/sys/net/core/somaxconn", "4096\n");
    let (listed, whole) = folder.undo();
    assert!(whole);
    assert_eq!(listed[0].undone, Undone::Rebooted);
    assert_eq!(
        folder.files()[&folder.0.join("proc/sys/net/core/somaxconn")],
        "4096\n"
    );
}

#[test]
fn what_a_file_made_again_after_a_reboot_is_taken_back_too() {
    let folder = Folder::to_fix("lasting");
    let before = folder.files();
    folder.fix(&changes()[2..], Persistence::Persistent);
    folder.write("proc/sys/kernel/random/boot_id", "boot-2\n");
    // The boot has read the file, but for one setting whose module came later.
    folder.write("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    let (listed, whole) = folder.undo();
    assert!(whole);
    let undone: Vec<&Undone> = listed.iter().map(|one| &one.undone).collect();
    assert_eq!(
        undone,
        [&Undone::Restore, &Undone::Restore, &Undone::Rebooted]
    );
    folder.write("proc/sys/kernel/random/boot_id", "boot-1\n");
    assert_eq!(folder.files(), before);
    assert!(!folder.journal().exists());
}

#[test]
fn one_change_that_is_refused_does_not_stop_the_others() {
    let folder = Folder::to_fix("refused");
    let changes = changes();
    let mut plan = Plan::new(
        &folder.root(),
        &changes[3..],
        Persistence::UntilReboot,
        None,
        &[],
    )
    .unwrap();
    plan.steps.insert(
        0,
        Step {
            target: Target::Sysctl("net.netfilter.nf_conntrack_max".into()),
            before: None,
            after: "5".into(),
            why: "of a test".into(),
            needs: Vec::new(),
        },
    );
    let outcomes = folder.outcomes(&plan);
    assert!(
        matches!(outcomes[..], [Applied::Refused(_), Applied::Made]),
        "{outcomes:?}"
    );
    assert!(folder.undo().1);
}

/// `pam_limits` refuses logins where a limit is above `fs.nr_open`.
#[test]
fn no_limit_is_written_above_a_ceiling_that_could_not_be_raised() {
    let folder = Folder::to_fix("ceiling");
    let place = folder.0.join("proc/sys/fs/nr_open");
    let changes = [
        change(Setting::Sysctl("fs.nr_open"), "1048576", "2000000"),
        change(Setting::DescriptorLimit, "1024", "2000000"),
    ];
    for unit in [None, Some("nginx.service")] {
        let plan = Plan::new(
            &folder.root(),
            &changes[1..],
            Persistence::Persistent,
            unit,
            &[],
        )
        .unwrap();
        assert_eq!(plan.steps[0].needs, []);
        folder.write("proc/sys/fs/nr_open", "1048576\n");
        let plan = Plan::new(&folder.root(), &changes, Persistence::Persistent, unit, &[]).unwrap();
        // A folder in its place cannot be written, not by root either.
        std::fs::remove_file(&place).unwrap();
        std::fs::create_dir(&place).unwrap();
        let outcomes = folder.outcomes(&plan);
        assert!(
            matches!(
                outcomes[..],
                [Applied::Refused(_), Applied::Made, Applied::LeftOut(_)]
            ),
            "{outcomes:?}"
        );
        let limits = plan.steps[2].target.path(&folder.root());
        assert!(!limits.exists(), "{limits:?}");
        std::fs::remove_dir(&place).unwrap();
        folder.write("proc/sys/fs/nr_open", "1048576\n");
        assert!(folder.undo().1);
    }
}

/// The kernel was seen to do both.
#[test]
fn a_list_of_ports_that_the_kernel_sorts_and_joins_is_the_same_list() {
    let reserved = Target::Sysctl("net.ipv4.ip_local_reserved_ports".into());
    let same = |one, other| reserved.same(Some(one), Some(other));
    assert!(same("33000-33010,50000,40000", "33000-33010,40000,50000\n"));
    assert!(same("8000,8001,9000", "8000-8001,9000"));
    assert!(same("", "\n"));
    assert!(!same("8000", "8000-8001") && !same("8000", ""));
    assert!(!same("8000", "nonsense") && !reserved.same(Some(""), None));
}

#[test]
fn ports_are_not_widened_over_a_listening_port_that_is_not_reserved() {
    let folder = Folder::to_fix("widen");
    let changes = changes();
    let plan = Plan::new(
        &folder.root(),
        &changes[1..3],
        Persistence::UntilReboot,
        None,
        &[],
    )
    .unwrap();
    let reserved = folder.0.join("proc/sys/net/ipv4/ip_local_reserved_ports");
    std::fs::remove_file(&reserved).unwrap();
    std::fs::create_dir(&reserved).unwrap();
    let outcomes = folder.outcomes(&plan);
    assert!(
        matches!(outcomes[..], [Applied::Refused(_), Applied::LeftOut(_)]),
        "{outcomes:?}"
    );
}

#[test]
fn files_that_go_beyond_the_ceiling_say_what_comes_first() {
    let mut machine = crate::testing::small_machine();
    machine.descriptors.table_ceiling = 1_048_576;
    let role = crate::Role::Server;
    let load = crate::Load::idle(role).on(crate::Program::Ordinary { processes: 1 });
    for (wanted, is_said) in [(2_000_000, true), (100_000, false)] {
        let examination = crate::Examination::new(machine.clone(), load, wanted);
        for format in [Format::LimitsConf, Format::Systemd] {
            let text = print(&examination, format);
            assert_eq!(
                text.starts_with("# first: fs.nr_open = "),
                is_said,
                "{text}"
            );
        }
    }
}

#[test]
fn what_changed_while_a_person_was_asked_is_left_alone() {
    let folder = Folder::to_fix("meanwhile");
    let plan = Plan::new(
        &folder.root(),
        &changes()[3..],
        Persistence::UntilReboot,
        None,
        &[],
    )
    .unwrap();
    folder.write("proc/sys/net/core/somaxconn", "777\n");
    let mut journal = Journal::open(&folder.journal()).unwrap();
    apply(
        &folder.root(),
        &plan.steps,
        &mut journal,
        |_, applied| match applied {
            Applied::ChangedMeanwhile(now) => assert_eq!(now.as_deref(), Some("777")),
            other => panic!("{other:?}"),
        },
    )
    .unwrap();
    let now = &folder.files()[&folder.0.join("proc/sys/net/core/somaxconn")];
    assert_eq!(now, "777\n");
}

#[test]
fn where_all_is_refused_there_is_no_journal_to_undo() {
    let folder = Folder::to_fix("all-refused");
    let step = Step {
        target: Target::Sysctl("net.netfilter.nf_conntrack_max".into()),
        before: None,
        after: "5".into(),
        why: "of a test".into(),
        needs: Vec::new(),
    };
    let mut journal = Journal::open(&folder.journal()).unwrap();
    apply(&folder.root(), &[step], &mut journal, |_, applied| {
        assert!(matches!(applied, Applied::Refused(_)), "{applied:?}");
    })
    .unwrap();
    journal.remove_if_settled().unwrap();
    assert!(!folder.journal().exists());
}

/// Between opening and locking it another run may have settled it and taken it away.
#[test]
fn a_journal_that_was_taken_away_is_not_written_to() {
    let folder = Folder::to_fix("race");
    folder.fix(&changes()[3..], Persistence::UntilReboot);
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .append(true)
        .open(folder.journal())
        .unwrap();
    assert!(folder.undo().1);
    assert!(Journal::lock(&folder.journal(), opened).unwrap().is_none());
    assert!(Journal::open_existing(&folder.journal()).unwrap().is_none());
    let reopened = Journal::open(&folder.journal()).unwrap();
    assert!(folder.journal().exists() && reopened.pending().is_empty());
}

#[test]
fn files_for_others_give_myriad_what_stops_it() {
    let mut machine = crate::testing::small_machine();
    machine.descriptors.table_hard = 560;
    machine.io_uring = crate::IoUring::Disabled;
    machine.surroundings.threads = Some([100, 90]);
    let load = crate::Load::idle(crate::Role::Server);
    let examination = crate::Examination::new(machine.clone(), load, 1_000_000);
    let systemd = print(&examination, Format::Systemd);
    assert!(
        systemd.contains("[Service]\nLimitNOFILE=") && systemd.contains("\nTasksMax=1000\n"),
        "{systemd}"
    );
    let docker = print(&examination, Format::Docker);
    assert!(
        docker.contains("--ulimit nofile=") && docker.contains("--pids-limit 1000"),
        "{docker}"
    );
    machine.io_uring = crate::IoUring::Allowed;
    machine.descriptors.locked_bytes_max = Some(1 << 20);
    let examination = crate::Examination::new(machine.clone(), load, 1_000_000);
    let limits = print(&examination, Format::LimitsConf);
    assert!(limits.contains("* hard memlock 60416\n"), "{limits}");
    // Only where neither binds.
    machine = crate::testing::small_machine();
    let examination = crate::Examination::new(machine, load, 1_000_000);
    for format in [Format::Systemd, Format::LimitsConf] {
        let text = print(&examination, format);
        assert!(
            text.contains("as many descriptor tables as it needs"),
            "{text}"
        );
    }
}

#[test]
fn a_journal_is_for_one_at_a_time_and_says_what_is_wrong_with_it() {
    let folder = Folder::to_fix("journal");
    let held = Journal::open(&folder.journal()).unwrap();
    let error = Journal::open(&folder.journal()).unwrap_err();
    assert!(matches!(error, JournalError::Busy { .. }), "{error}");
    drop(held);
    std::fs::write(
        folder.journal(),
        "{\"done\":{\"number\":1}}\nnonsense\n{}\n",
    )
    .unwrap();
    let error = Journal::open(&folder.journal()).unwrap_err().to_string();
    assert!(error.contains("line 2 of the journal"), "{error}");
    assert!(
        Journal::open_existing(&folder.0.join("none"))
            .unwrap()
            .is_none()
    );
}

/// What was changed until the next reboot binds no more, and is to last all the same.
#[test]
fn what_an_earlier_run_made_lasts_too() {
    let folder = Folder::to_fix("later");
    folder.write(
        "etc/sysctl.d/99-sysctl.conf",
        "vm.swappiness = 2\nnet.core.somaxconn=512\n",
    );
    folder.write("etc/sysctl.d/10-first.conf", "net.core.somaxconn=512\n");
    let before = folder.files();
    folder.fix(&changes()[2..], Persistence::UntilReboot);
    let journal = Journal::open_existing(&folder.journal()).unwrap().unwrap();
    let made = journal.made(&folder.root());
    drop(journal);
    let plan = Plan::new(&folder.root(), &[], Persistence::Persistent, None, &made).unwrap();
    let [step] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    assert!(
        step.after.contains("\nnet.core.somaxconn = 4096\n")
            && step
                .after
                .contains("\nnet.ipv4.ip_local_port_range = 1024 65535\n")
            && step.after.contains("vm.swappiness = 1\n"),
        "{}",
        step.after
    );
    // Debian's is read after ours, the first one before it.
    assert_eq!(
        plan.by_hand,
        [
            "take net.core.somaxconn out of /etc/sysctl.d/99-sysctl.conf, line 2: it is read after \
             /etc/sysctl.d/90-myriad.conf"
        ]
    );
    let mut journal = Journal::open(&folder.journal()).unwrap();
    apply(&folder.root(), &plan.steps, &mut journal, |_, _| {}).unwrap();
    drop(journal);
    // Said once is enough.
    let again = Plan::new(&folder.root(), &[], Persistence::Persistent, None, &made).unwrap();
    assert_eq!(again, Plan::default());
    assert!(folder.undo().1);
    assert_eq!(folder.files(), before);
}

#[test]
fn a_module_that_comes_after_sysctl_is_named() {
    let folder = Folder::to_fix("module");
    folder.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n");
    let change = change(
        Setting::Sysctl("net.netfilter.nf_conntrack_max"),
        "262144",
        "500000",
    );
    let plan = Plan::new(
        &folder.root(),
        &[change],
        Persistence::Persistent,
        None,
        &[],
    )
    .unwrap();
    assert!(plan.by_hand[0].contains("/etc/modules-load.d"), "{plan:?}");
}

#[test]
fn a_container_has_room_for_what_its_program_keeps() {
    let machine = crate::testing::small_machine();
    let kubernetes = |load| {
        let examination = crate::Examination::new(machine.clone(), load, 100_000);
        print(&examination, Format::Kubernetes)
    };
    let server = kubernetes(crate::Load::idle(crate::Role::Server));
    // 100,000 × (3,950 + 250 + 100) B and 3 MiB, 5% more, and of the whole 3/16 for queues.
    assert!(
        server.ends_with("- name: myriad\n    resources:\n      limits:\n        memory: 534Mi\n"),
        "{server}"
    );
    let role = crate::Role::Proxy(crate::Paths::SINGLE);
    let program = crate::Program::Ordinary { processes: 1 };
    let proxy = kubernetes(crate::Load::idle(role).on(program));
    // 100,000 × (7,900 + 2 × (250 + 9,071)) B and 3 MiB, 5% more.
    assert!(
        proxy.ends_with("- name: proxy\n    resources:\n      limits:\n        memory: 2661Mi\n"),
        "{proxy}"
    );
}

#[test]
fn settings_that_newer_clusters_allow_are_not_called_unsafe() {
    let mut machine = crate::testing::small_machine();
    machine.listening.port = 40_000;
    machine.listening.can_be_taken = true;
    machine.tcp.backlog_max = Some(128);
    let load = crate::Load::idle(crate::Role::Server);
    let text = print(
        &crate::Examination::new(machine, load, 1_000_000),
        Format::Kubernetes,
    );
    for line in [
        "allow it: --allowed-unsafe-sysctls net.core.somaxconn",
        "allow it, before Kubernetes 1.27: --allowed-unsafe-sysctls net.ipv4.ip_local_reserved_ports",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
