//! known.json: what a node was known to be. It survives a reboot where its folder does.

use crate::{EdgeError, files};
use gpuward_core::health::known::{KnownFile, KnownFileError};
use std::path::{Path, PathBuf};

/// A node of 16 GPUs has some 10 KiB.
const MAX_BYTES: u64 = 1024 * 1024;

fn path_in(state: &Path) -> PathBuf {
    state.join("known.json")
}

/// What `node` was known to be; `None` where nobody has written it down.
///
/// # Errors
/// The file is not to be trusted, torn, of a newer version or about another node.
pub fn load_known(state: &Path, node: &str) -> Result<Option<KnownFile>, EdgeError> {
    let path = path_in(state);
    let text = match files::read_own(&path, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = KnownFile::parse(&text, node);
    file.map(Some).map_err(|error| EdgeError::Content { path, why: error.to_string() })
}

/// Writes what a node is known to be from now on. What stood there before is kept as known.json.old.
///
/// # Errors
/// The folder or the file that stands there is not to be trusted, the file is of a newer version, or nothing can be
/// written.
pub fn save_known(state: &Path, file: &KnownFile) -> Result<PathBuf, EdgeError> {
    let path = path_in(state);
    files::own_folder(state, 0o700)?;
    match files::read_own(&path, MAX_BYTES) {
        Ok(text) => {
            if let Err(error @ KnownFileError::Newer { .. }) = KnownFile::parse(&text, &file.node) {
                return Err(EdgeError::Content { path, why: error.to_string() });
            }
            files::write_atomic(&path.with_extension("json.old"), &text, 0o600)?;
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    let text = serde_json::to_string_pretty(file).unwrap_or_default();
    files::write_atomic(&path, &(text + "\n"), 0o600)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuward_core::health::KnownGpu;
    use gpuward_core::health::known::{How, Seen};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn file(node: &str) -> KnownFile {
        let gpu: KnownGpu =
            serde_json::from_value(serde_json::json!({ "pci": "0000:3b:00.0", "uuid": "GPU-8932f937" }))
                .unwrap();
        KnownFile::new(node, How::Learned, 7, "boot", Seen { gpus: vec![gpu], nics: Vec::new() })
    }

    #[test]
    fn what_is_written_reads_back_and_the_one_before_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert!(load_known(&state, "n1").unwrap().is_none(), "no folder is no error");
        save_known(&state, &file("n1")).unwrap();
        let before = fs::read_to_string(state.join("known.json")).unwrap();
        assert_eq!(load_known(&state, "n1").unwrap(), Some(file("n1")));
        save_known(&state, &KnownFile { how: How::Accepted, ..file("n1") }).unwrap();
        assert_eq!(fs::read_to_string(state.join("known.json.old")).unwrap(), before);
        assert_eq!(load_known(&state, "n1").unwrap().unwrap().how, How::Accepted);
    }

    #[test]
    fn a_file_that_is_torn_foreign_or_of_another_node_says_so_and_a_newer_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (state, path) = (folder.path(), folder.path().join("known.json"));
        fs::set_permissions(state, fs::Permissions::from_mode(0o700)).unwrap();
        save_known(state, &file("n2")).unwrap();
        let says = || load_known(state, "n1").unwrap_err().to_string();
        assert!(says().contains("it is about node n2"), "{}", says());
        let newer =
            fs::read_to_string(&path).unwrap().replace("\"gpuward_known\": 1", "\"gpuward_known\": 9");
        fs::write(&path, &newer).unwrap();
        assert!(says().contains("version 9 of the format"), "{}", says());
        assert!(save_known(state, &file("n1")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), newer, "left alone");
        fs::write(&path, &newer[..newer.len() / 2]).unwrap();
        assert!(says().contains("not readable as what the node was known to be"), "{}", says());
        save_known(state, &file("n1")).unwrap();
        assert!(fs::read_to_string(state.join("known.json.old")).unwrap().contains("\"gpuward_known\": 9"));
        chown(&path, Some(65534), None).unwrap();
        assert!(says().contains("uid 65534"), "{}", says());
        assert!(save_known(state, &file("n1")).is_err(), "somebody else's file is not ours to replace");
    }
}
