//! Writes the `sys/` and `proc/` trees of a machine below a root folder, as the readers of gpuward see them.
//!
//! Only files that a reader of the real trees uses. Static: faults do not act here, a test that wants another tree
//! changes the machine and renders again.

mod cpu;
mod pci;
mod procfs;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::scenario::{Machine, ScenarioError};

impl Machine {
    /// Writes `root/sys` and `root/proc` in place of what was there.
    pub fn render(&self, root: &Path) -> Result<(), ScenarioError> {
        fs::create_dir_all(root).map_err(ScenarioError::io("create", root))?;
        let whole = fs::canonicalize(root).map_err(ScenarioError::io("find", root))?;
        if whole.parent().is_none() {
            let refused = std::io::Error::other("this is the root of the host");
            return Err(ScenarioError::io("render into", root)(refused));
        }
        for part in ["sys", "proc"] {
            let old = whole.join(part);
            match fs::remove_dir_all(&old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ScenarioError::io("remove", &old)(error));
                }
                _ => {}
            }
        }
        let mut tree = Tree { root: whole, made: HashSet::new() };
        cpu::render(self, &mut tree)?;
        pci::render(self, &mut tree)?;
        procfs::render(self, &mut tree)?;
        procfs::services(self, &mut tree)
    }
}

/// Writes below the root, making each folder once.
struct Tree {
    root: PathBuf,
    made: HashSet<PathBuf>,
}

impl Tree {
    /// Writes a file, with the newline that the kernel ends most of them with.
    fn file(&mut self, path: &str, text: impl std::fmt::Display) -> Result<(), ScenarioError> {
        let path = self.place(path)?;
        fs::write(&path, format!("{text}\n")).map_err(ScenarioError::io("write", &path))
    }

    fn link(&mut self, path: &str, target: &str) -> Result<(), ScenarioError> {
        let path = self.place(path)?;
        symlink(target, &path).map_err(ScenarioError::io("link", &path))
    }

    fn folder(&mut self, path: &str) -> Result<(), ScenarioError> {
        let path = self.root.join(path);
        if self.made.insert(path.clone()) {
            fs::create_dir_all(&path).map_err(ScenarioError::io("create", &path))?;
        }
        Ok(())
    }

    fn place(&mut self, path: &str) -> Result<PathBuf, ScenarioError> {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder)?;
        }
        Ok(self.root.join(path))
    }
}
