"""The build script of the program finds the commit that `myriad --version` names: in a repository, in an archive, in a container."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "crates" / "myriad" / "build.rs"
GIT = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]


@unittest.skipUnless(shutil.which("git") and shutil.which("rustc"), "git or rustc is not installed")
class Commit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "sources"
        self.crate = self.root / "crates" / "myriad"
        self.crate.mkdir(parents=True)
        self.script = Path(folder.name) / "script"
        # As Cargo compiles it: the crate's folder is known then.
        environment = {**os.environ, "CARGO_MANIFEST_DIR": str(self.crate)}
        command = ["rustc", "--edition", "2024", "-C", "debuginfo=0", "-o", self.script, SCRIPT]
        subprocess.run(command, env=environment, check=True)

    def git(self, *arguments, at=None):
        done = subprocess.run([*GIT, *arguments], cwd=at or self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, at=None):
        self.git("commit", "--quiet", "--allow-empty", "--message", "m", at=at)
        return self.git("rev-parse", "HEAD", at=at)

    def said(self, build_commit=None):
        """What the script tells Cargo: the commit, and the files to watch."""
        environment = {name: value for name, value in os.environ.items() if name != "BUILD_COMMIT" and not name.startswith("GIT_")}
        if build_commit is not None:
            environment["BUILD_COMMIT"] = build_commit
        done = subprocess.run([self.script], cwd=self.crate, env=environment, capture_output=True, text=True, check=True)
        lines = [line.removeprefix("cargo::").split("=", 1) for line in done.stdout.splitlines()]
        self.assertIn(["rerun-if-env-changed", "BUILD_COMMIT"], lines)
        (commit,) = [value.removeprefix("BUILD_COMMIT=") for name, value in lines if name == "rustc-env"]
        return commit, [Path(value) for name, value in lines if name == "rerun-if-changed" and value != "build.rs"]

    def test_a_repository_tells_its_commit_and_what_changes_with_it(self):
        self.git("init", "--quiet")
        for _ in range(2):
            head = self.commit()
            commit, watched = self.said()
            self.assertEqual(commit, head[:12])
            # Cargo runs a script at every build if a file that it names is not there.
            self.assertEqual([path for path in watched if not path.exists()], [])
        before = {path: path.stat().st_mtime_ns for path in watched}
        self.commit()
        self.assertNotEqual({path: path.stat().st_mtime_ns for path in watched}, before)

    def test_a_repository_without_a_log_of_its_head_is_watched_too(self):
        self.git("init", "--quiet")
        self.git("config", "core.logAllRefUpdates", "false")
        self.commit()
        self.git("pack-refs", "--all")
        _, watched = self.said()
        self.assertEqual([path for path in watched if not path.exists()], [])
        self.assertEqual({path.name for path in watched}, {"HEAD", "heads", "packed-refs"})

    def test_a_linked_work_tree_has_its_own_commit(self):
        main = self.root.parent / "main"
        main.mkdir()
        self.git("init", "--quiet", at=main)
        self.commit(at=main)
        shutil.rmtree(self.root)
        self.git("worktree", "add", "--quiet", "--detach", self.root, at=main)
        self.crate.mkdir(parents=True)
        head = self.commit()
        commit, watched = self.said()
        self.assertEqual(commit, head[:12])
        self.assertTrue(watched)

    def test_sources_without_git_have_the_commit_of_the_environment(self):
        self.assertEqual(self.said(), ("unknown", []))
        # The build argument of a container that nobody gave.
        self.assertEqual(self.said("")[0], "unknown")
        self.assertEqual(self.said("0123456789abcdef0123456789abcdef01234567\n")[0], "0123456789ab")
        self.assertEqual(self.said("0.1.0-1ubuntu1-vendor")[0], "0.1.0-1ubuntu1-vendor")

    def test_an_archive_inside_another_repository_is_not_that_one(self):
        self.git("init", "--quiet", at=self.root.parent)
        self.commit(at=self.root.parent)
        self.assertEqual(self.said(), ("unknown", []))


if __name__ == "__main__":
    unittest.main()
