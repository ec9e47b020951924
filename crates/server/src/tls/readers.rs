//! Who may read a file with a secret.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The permission of everybody to read a file, and to go through a folder. A group may be meant: that of programs that share a certificate.
const OTHERS_READ: u32 = 0o004;
const OTHERS_SEARCH: u32 = 0o001;

/// A remark if every user of this machine may read a file: its own permissions allow it, and those of all folders above. `what` is in it.
pub(super) fn open_to_everybody(path: &Path, what: &str) -> Option<String> {
    // The file behind a link, as certbot and Kubernetes make them.
    let file = fs::canonicalize(path).ok()?;
    let allows = |path: &Path, wanted| {
        let metadata = fs::metadata(path);
        metadata.is_ok_and(|metadata| metadata.permissions().mode() & wanted != 0)
    };
    let mut folders = file.ancestors().skip(1);
    let is_open = allows(&file, OTHERS_READ) && folders.all(|folder| allows(folder, OTHERS_SEARCH));
    is_open.then(|| {
        let path = path.display();
        format!(
            "every user of this machine may read {what} in {path}: give the file to the server's user, and run chmod o= on it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn a_file_is_open_if_everybody_comes_to_it_and_may_read_it() {
        let folder = std::env::temp_dir().join(format!("myriad-readers-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let (file, link) = (folder.join("key"), folder.join("link"));
        fs::write(&file, "secret").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
        };
        for (folder_mode, file_mode, is_open) in [
            (0o755, 0o644, true),
            (0o711, 0o604, true),
            (0o755, 0o640, false),
            (0o755, 0o600, false),
            // Nobody else comes to it.
            (0o700, 0o644, false),
            (0o750, 0o666, false),
        ] {
            set(&folder, folder_mode);
            set(&file, file_mode);
            for path in [&file, &link] {
                let remark = open_to_everybody(path, "the key");
                assert_eq!(remark.is_some(), is_open, "{folder_mode:o} {file_mode:o}");
            }
        }
        assert_eq!(open_to_everybody(&folder.join("none"), "the key"), None);
        fs::remove_dir_all(&folder).expect("a folder");
    }
}
