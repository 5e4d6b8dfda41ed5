//! Unfolds the trees of `tests/cgroups` into a temporary folder.
//!
//! A line is `PATH: CONTENT` for a file, where ` ; ` ends a line of it, or `PATH -> TARGET` for a link. `{root}` stands
//! for the temporary folder. `#` begins a comment.

use super::{Hierarchies, Job};
use gpuward_core::model::JobId;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(super) struct Recorded {
    folder: TempDir,
}

impl Recorded {
    pub(super) fn load(name: &str) -> Recorded {
        let folder = tempfile::tempdir().unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cgroups");
        let text = fs::read_to_string(tests.join(format!("{name}.txt"))).unwrap();
        let recorded = Recorded { folder };
        recorded.add(&text);
        recorded
    }

    /// Adds or replaces what `text` says.
    pub(super) fn add(&self, text: &str) {
        let root = self.folder.path().display().to_string();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let line = line.replace("{root}", &root);
            if let Some((path, target)) = line.split_once(" -> ") {
                std::os::unix::fs::symlink(target, self.make(path)).unwrap();
            } else {
                let (path, content) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
                let content = content.trim().replace(" ; ", "\n");
                let end = if content.is_empty() { "" } else { "\n" };
                fs::write(self.make(path), content + end).unwrap();
            }
        }
    }

    fn make(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(super) fn find(&self, node: Option<&str>) -> Hierarchies {
        Hierarchies::find(&self.path("cgroup"), &self.path("proc"), node).unwrap()
    }
}

pub(super) fn job(id: u32) -> Job {
    Job { id: JobId(id), sluid: None }
}
