//! gres.conf, as far as it says which device file is which GPU of a node.

use super::hostlist;
use super::node_gres::NodeGres;
use std::collections::BTreeSet;

/// No node has more GPUs; a longer list is a mistake.
const MAX_FILES: usize = 1024;

/// No more names of nodes and files are written out for one file. Ours: 10,000 nodes, each in 26 lines.
const MAX_NAMES: usize = 262_144;

/// What gres.conf says about one node's GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GresConf {
    /// The device files in the order of the GRES index. Empty where Slurm detects the GPUs itself.
    pub files: Vec<String>,
    /// The value of AutoDetect in force for the node, lower case.
    pub auto_detect: Option<String>,
    /// The types that its lines name; lines without one count as a type of their own.
    pub types: BTreeSet<String>,
    /// What slurm.conf says about the node's GPUs; `None` where it could not be read or says nothing.
    pub slurm: Option<NodeGres>,
    /// Whether slurm.conf says that each job has a control group.
    pub tracks_by_cgroup: bool,
    /// Why the file does not tell the whole story, where it does not.
    pub unclear: Option<String>,
}

impl GresConf {
    /// Reads the text of a gres.conf for `node`.
    ///
    /// Lines that name other nodes, and other GRES than `gpu`, are passed over. What cannot be understood makes the
    /// result unclear, never wrong.
    pub fn parse(text: &str, node: &str) -> GresConf {
        let mut conf = GresConf::default();
        let mut names = 0;
        for line in logical_lines(text) {
            if names > MAX_NAMES {
                conf.unclear = Some(format!("it names more than {MAX_NAMES} nodes and files"));
                break;
            }
            if let Err(why) = conf.take_line(&line, node, &mut names) {
                conf.unclear = Some(why);
            }
        }
        conf
    }

    /// `names` counts what was written out, for it is what the work grows with.
    fn take_line(&mut self, line: &str, node: &str, names: &mut usize) -> Result<(), String> {
        let pairs: Vec<(String, &str)> = line
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap_or((word, "")))
            .map(|(key, value)| (key.to_ascii_lowercase(), value))
            .collect();
        if pairs.first().is_some_and(|(name, _)| name == "include") {
            return Err("it includes another file".into());
        }
        if let Some((key, _)) = pairs.iter().find(|(key, value)| value.is_empty() && !key.is_empty()) {
            return Err(format!("'{}' has no value beside it", crate::text::escape(key, 40)));
        }
        let value = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| *value);
        if let Some(nodes) = value("nodename") {
            let nodes = hostlist::expand(nodes).map_err(|error| format!("NodeName {error}"))?;
            *names += nodes.len();
            if !nodes.iter().any(|name| name == node) {
                return Ok(());
            }
        }
        if let Some(method) = value("autodetect") {
            self.auto_detect = Some(method.to_ascii_lowercase());
        }
        if value("name").is_some_and(|name| name.eq_ignore_ascii_case("gpu")) {
            self.types.insert(value("type").unwrap_or("").to_ascii_lowercase());
            self.take_gpus(value("file"), value("multiplefiles"), value("count"), names)?;
        }
        Ok(())
    }

    fn take_gpus(
        &mut self,
        file: Option<&str>,
        multiple: Option<&str>,
        count: Option<&str>,
        names: &mut usize,
    ) -> Result<(), String> {
        if multiple.is_some() {
            return Err("MultipleFiles names MIG devices".into());
        }
        match file {
            Some(list) if list.contains("nvidia-cap") => Err("File names MIG devices".into()),
            Some(list) => {
                let files = hostlist::expand(list).map_err(|error| format!("File {error}"))?;
                *names += files.len();
                if self.files.len() + files.len() > MAX_FILES {
                    return Err(format!("it names more than {MAX_FILES} files for this node"));
                }
                self.files.extend(files);
                Ok(())
            }
            None if count.is_some() => Err("Count without File names no device".into()),
            None => Ok(()),
        }
    }

    /// True where the files name several types of GPU for the node.
    ///
    /// A job with GPUs of two types then has those of one type only in its prolog's variables, and Slurm merges several
    /// types in an order of its own (both seen on 22.05.8).
    pub fn has_several_types(&self) -> bool {
        self.types.len() > 1 || self.slurm.as_ref().is_some_and(|slurm| slurm.types.len() > 1)
    }

    /// How many NVIDIA GPUs the file names for the node; `None` where Slurm detects them, where the file is unclear, or
    /// where its GPUs are another vendor's.
    pub fn gpu_count(&self) -> Option<u32> {
        let count = self.files.iter().filter(|file| is_nvidia(file)).count();
        if count == 0 || self.unclear.is_some() {
            return None;
        }
        u32::try_from(count).ok()
    }

    /// True where the file names GPUs, and all of them are another vendor's.
    pub fn is_other_vendor(&self) -> bool {
        let detected = matches!(self.auto_detect.as_deref(), Some("rsmi" | "oneapi" | "nrt"));
        let named = !self.files.is_empty() && !self.files.iter().any(|file| is_nvidia(file));
        named || (self.files.is_empty() && detected)
    }
}

/// NVIDIA's device files are called nvidiaN; others' are renderDN or cardN.
fn is_nvidia(file: &str) -> bool {
    file.rsplit('/').next().is_some_and(|name| name.starts_with("nvidia"))
}

/// Lines without comments, with lines that end in a backslash joined.
pub(super) fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = String::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("");
        match line.trim_end().strip_suffix('\\') {
            Some(head) => {
                open.push_str(head);
                open.push(' ');
            }
            None => {
                open.push_str(line);
                lines.push(std::mem::take(&mut open));
            }
        }
    }
    lines.push(open);
    lines.retain(|line| !line.trim().is_empty());
    lines
}

/// The number at the end of a device file's name: `/dev/nvidia3` is 3.
pub fn device_number(file: &str) -> Option<u32> {
    let name = file.trim_end_matches(|letter: char| letter.is_ascii_digit());
    file[name.len()..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_file_is_the_order_of_the_index() {
        let text = "# GPUs\nNodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[3,0-1]\nNodeName=n1 name=GPU \\\n  File=/dev/nvidia2\nNodeName=n3 Name=gpu File=/dev/nvidia[0-7]\nName=mps Count=100\n";
        let conf = GresConf::parse(text, "n1");
        assert_eq!(conf.files, ["/dev/nvidia3", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]);
        assert_eq!((conf.gpu_count(), conf.unclear), (Some(4), None));
        assert_eq!(GresConf::parse(text, "n2").gpu_count(), Some(3));
        assert_eq!(GresConf::parse(text, "n9").gpu_count(), None);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for text in [
            "include x.conf",
            "Name=gpu Count=8",
            "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/c1",
            "Name=gpu File=/dev/nvidia-caps/nvidia-cap[30,39]",
            "NodeName=n[ Name=gpu File=/dev/nvidia0",
        ] {
            let conf = GresConf::parse(text, "n1");
            assert!(conf.unclear.is_some() && conf.gpu_count().is_none(), "{text}");
        }
    }

    #[test]
    fn more_names_than_any_site_has_are_unclear_and_not_kept() {
        for line in
            ["Name=gpu File=/dev/nvidia[0-65535]\n", "NodeName=[0-65535] Name=gpu File=/dev/nvidia0\n"]
        {
            let conf = GresConf::parse(&line.repeat(40), "n1");
            assert!(conf.unclear.is_some() && conf.files.len() <= MAX_FILES, "{line}: {:?}", conf.unclear);
        }
    }

    #[test]
    fn detection_by_slurm_is_seen() {
        let conf = GresConf::parse("AutoDetect=NVML\n", "n1");
        assert_eq!(conf.auto_detect.as_deref(), Some("nvml"));
        assert!(conf.files.is_empty());
        let conf = GresConf::parse("NodeName=n2 AutoDetect=nvml\n", "n1");
        assert_eq!(conf.auto_detect, None);
    }

    #[test]
    fn device_numbers_stand_at_the_end() {
        assert_eq!(device_number("/dev/nvidia13"), Some(13));
        assert_eq!(device_number("/dev/nvidia"), None);
        assert_eq!(device_number("/dev/nvidiä3"), Some(3));
        assert_eq!(device_number("/dev/nvidiä"), None);
    }
}
