//! What gres.conf and slurm.conf say about the GPUs of this node.

use crate::files;
use gpuward_core::config::SlurmSettings;
use gpuward_core::model::gres_conf::GresConf;
use gpuward_core::model::node_gres::{NodeGres, tracks_by_cgroup};
use std::path::{Path, PathBuf};

/// No gres.conf or slurm.conf in use is larger.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// How deep files may include others: enough for any site, and an end for two that include each other.
const MAX_INCLUDES: u32 = 4;

/// Reads gres.conf: where the settings say, else beside slurm.conf. One that cannot be read makes the result unclear.
///
/// slurm.conf adds the types and the number of the node's GPUs. One that cannot be read adds nothing.
pub fn read_gres_conf(settings: &SlurmSettings, slurm_conf: Option<&str>, node: &str) -> GresConf {
    let configured = Some(settings.conf.as_str()).filter(|conf| !conf.is_empty());
    let slurm_conf = Path::new(configured.or(slurm_conf).unwrap_or("/etc/slurm/slurm.conf"));
    let path = match settings.gres_conf.as_str() {
        "" => slurm_conf.with_file_name("gres.conf"),
        path => PathBuf::from(path),
    };
    let mut gres = match files::read_text(&path, MAX_BYTES) {
        Ok(text) => GresConf::parse(&text, node),
        Err(error) => GresConf { unclear: Some(error.to_string()), ..GresConf::default() },
    };
    let text = with_includes(slurm_conf, slurm_conf, MAX_INCLUDES);
    gres.slurm = NodeGres::parse(&text, node);
    gres.tracks_by_cgroup = tracks_by_cgroup(&text);
    gres
}

/// The text of `path`, with that of the files that it includes in their place; a relative path is beside `slurm_conf`.
fn with_includes(path: &Path, slurm_conf: &Path, depth: u32) -> String {
    let text = files::read_text(path, MAX_BYTES).unwrap_or_else(|error| {
        log::debug!("{error}; the types of the node's GPUs may be in there");
        String::new()
    });
    let mut whole = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let includes = words.next().is_some_and(|word| word.eq_ignore_ascii_case("include"));
        match words.next().filter(|_| includes && depth > 0) {
            Some(other) => {
                let other = slurm_conf.with_file_name("").join(other);
                whole.push_str(&with_includes(&other, slurm_conf, depth - 1));
            }
            None => whole.push_str(line),
        }
        whole.push('\n');
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_conf_and_what_it_includes_name_the_types_of_the_nodes_gpus() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        write("slurm.conf", "ClusterName=c\ninclude nodes.conf\n");
        write("nodes.conf", "Include nodes.conf\nNodeName=n[1-2] Gres=gpu:l40s:2,gpu:h100:2\n");
        write("gres.conf", "AutoDetect=nvml\n");
        let conf = root.path().join("slurm.conf");
        let read = |settings: &SlurmSettings, node| read_gres_conf(settings, conf.to_str(), node);
        let gres = read(&SlurmSettings::default(), "n2");
        assert!(gres.has_several_types());
        assert!(gres.tracks_by_cgroup);
        assert_eq!(gres.slurm.and_then(|slurm| slurm.count), Some(4));
        assert_eq!(read(&SlurmSettings::default(), "n3").slurm, None);
        let elsewhere = SlurmSettings { conf: "/no/such/slurm.conf".into(), ..SlurmSettings::default() };
        let gres = read(&elsewhere, "n2");
        assert!(
            gres.unclear.is_some() && gres.slurm.is_none(),
            "gres.conf is beside the slurm.conf that counts"
        );
    }
}
