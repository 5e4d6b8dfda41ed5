//! slurm.conf, as far as it says which GPUs a node has: the `Gres=` of its NodeName line.

use super::gres_conf::logical_lines;
use super::hostlist;
use std::collections::BTreeSet;

/// The GPUs that slurm.conf gives a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeGres {
    /// Their types, lower case; those without one count as a type of their own.
    pub types: BTreeSet<String>,
    /// How many there are, MIG devices counted one by one; `None` where a number cannot be read.
    pub count: Option<u32>,
}

impl NodeGres {
    /// What the text of a slurm.conf says about the GPUs of `node`; `None` where it says nothing.
    pub fn parse(text: &str, node: &str) -> Option<NodeGres> {
        let (mut by_default, mut found) = (None, None);
        for line in logical_lines(text) {
            let value = |key: &str| {
                let words = line.split_whitespace().filter_map(|word| word.split_once('='));
                let mut named = words.filter(|(name, _)| name.eq_ignore_ascii_case(key));
                named.next().map(|(_, value)| value.trim_matches('"').to_owned())
            };
            let Some(nodes) = value("NodeName") else { continue };
            let gres = value("Gres");
            if nodes.eq_ignore_ascii_case("default") {
                by_default = gres.or(by_default);
                continue;
            }
            let Some(gres) = gres.or_else(|| by_default.clone()) else { continue };
            if hostlist::expand(&nodes).is_ok_and(|names| names.iter().any(|name| name == node)) {
                found = Some(gres);
            }
        }
        found.and_then(|gres| of_gpus(&gres))
    }
}

/// Whether Slurm keeps the processes of each job in a control group, by the text of a slurm.conf: ProctrackType, which is
/// proctrack/cgroup where nothing is said (slurm.conf(5)). A text without a ClusterName is no slurm.conf.
pub fn tracks_by_cgroup(text: &str) -> bool {
    let (mut is_slurm_conf, mut tracks) = (false, true);
    for line in logical_lines(text) {
        let Some((key, value)) = line.trim().split_once('=') else { continue };
        is_slurm_conf |= key.trim().eq_ignore_ascii_case("ClusterName");
        if key.trim().eq_ignore_ascii_case("ProctrackType") {
            tracks = value.trim().eq_ignore_ascii_case("proctrack/cgroup");
        }
    }
    is_slurm_conf && tracks
}

/// `gpu:h100:4,gpu:2,license:matlab:1`: name, type, count, of which the last two may be missing.
fn of_gpus(gres: &str) -> Option<NodeGres> {
    let mut all = NodeGres { count: Some(0), ..NodeGres::default() };
    for entry in gres.split(',') {
        // `gpu:4(S:0-1)`, as scontrol prints it.
        let mut words = entry.split('(').next().unwrap_or_default().split(':').map(str::trim);
        if !words.next().is_some_and(|name| name.eq_ignore_ascii_case("gpu")) {
            continue;
        }
        let words: Vec<&str> = words.filter(|word| !word.eq_ignore_ascii_case("no_consume")).collect();
        let (kind, count) = match words[..] {
            [] => ("", Some(1)),
            [only] if only.parse::<u32>().is_ok() => ("", only.parse().ok()),
            [kind] => (kind, Some(1)),
            [kind, count, ..] => (kind, count.parse().ok()),
        };
        all.types.insert(kind.to_ascii_lowercase());
        all.count = all.count.zip(count).and_then(|(sum, more): (u32, u32)| sum.checked_add(more));
    }
    (!all.types.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(text: &str, node: &str) -> Option<(Vec<String>, Option<u32>)> {
        NodeGres::parse(text, node).map(|gres| (gres.types.into_iter().collect(), gres.count))
    }

    #[test]
    fn types_and_number_of_a_nodes_gpus_are_read() {
        let text = "# nodes\nNodeName=n[1-2] CPUs=4 \\\n  Gres=gpu:l40s:2,gpu:H100:2,nic:1\nnodename=n3 gres=gpu:8(S:0-1)\n\
                    NodeName=n4 Gres=\"gpu\"\nNodeName=n5 Gres=gpu:3g.47gb:2,gpu:1g.12gb:no_consume:3\nNodeName=n6 Gres=nic:1\n\
                    NodeName=n7 Gres=gpu:a:1K\nNodeName=n8\n";
        let types = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(gpus(text, "n2"), Some((types(&["h100", "l40s"]), Some(4))));
        assert_eq!(gpus(text, "n3"), Some((types(&[""]), Some(8))));
        assert_eq!(gpus(text, "n4"), Some((types(&[""]), Some(1))));
        assert_eq!(gpus(text, "n5"), Some((types(&["1g.12gb", "3g.47gb"]), Some(5))));
        assert_eq!(gpus(text, "n7"), Some((types(&["a"]), None)), "a number of another form is not guessed");
        for node in ["n6", "n8", "n9"] {
            assert_eq!(gpus(text, node), None, "{node}");
        }
    }

    #[test]
    fn jobs_are_in_control_groups_where_slurm_conf_says_so_or_nothing_else() {
        assert!(tracks_by_cgroup("ClusterName=c\n"));
        assert!(tracks_by_cgroup("clustername=c\nproctracktype = proctrack/cgroup # all\n"));
        assert!(!tracks_by_cgroup("ClusterName=c\nProctrackType=proctrack/linuxproc\n"));
        assert!(!tracks_by_cgroup("") && !tracks_by_cgroup("NodeName=n1\n"));
    }

    #[test]
    fn a_default_holds_for_the_lines_behind_it() {
        let text =
            "NodeName=n1\nNodeName=DEFAULT Gres=gpu:a100:4\nNodeName=n2\nNodeName=n3 Gres=gpu:v100:2\n";
        assert_eq!(gpus(text, "n1"), None);
        assert_eq!(gpus(text, "n2").unwrap().1, Some(4));
        assert_eq!(gpus(text, "n3").unwrap().0, ["v100"]);
    }

    #[test]
    fn slurm_conf_says_how_many_gpus_a_node_has() {
        let count = |text: &str, node: &str| NodeGres::parse(text, node).and_then(|gres| gres.count);
        let text = "NodeName=DEFAULT CPUs=8 Gres=gpu:8\nNodeName=n[1-4] State=UNKNOWN\n# NodeName=n5 Gres=gpu:1\n\
                    nodename=m1 Gres=gpu:a100:2(S:0,1),mps:400,gpu:1 \\\n CPUs=4\nNodeName=m2 Gres=gpu\n\
                    NodeName=m3 Gres=shard:4\nPartitionName=p Nodes=n[1-4]\n";
        let counts = ["n1", "n4", "n5", "m1", "m2", "m3"].map(|node| count(text, node));
        assert_eq!(counts, [Some(8), Some(8), None, Some(3), Some(1), None]);
        assert_eq!(count("include nodes.conf\n", "n1"), None);
        assert_eq!(count("NodeName=n1 Gres=gpu:1g.10gb:7,gpu:no_consume:2\n", "n1"), Some(9));
    }
}
