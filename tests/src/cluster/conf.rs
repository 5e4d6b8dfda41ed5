//! The configuration files of a throw-away cluster.

use super::spec::NodeSpec;
use super::{ClusterError, Containment};
use std::collections::HashSet;
use std::path::Path;

/// What the files depend on.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) cluster: &'a str,
    pub(super) root: &'a Path,
    pub(super) host: &'a str,
    pub(super) nodes: &'a [NodeSpec],
    /// slurmctld's, then one for each node.
    pub(super) ports: &'a [u16],
    /// Lines that the user of the harness wants.
    pub(super) lines: &'a [String],
}

/// Settings the generator is asked to change, so that tests need not wait as a site would.
pub(super) fn changes(containment: &Containment) -> Vec<String> {
    let mut changes = vec![
        // Both schedulers look again at once, not after 60 and 30 s: a requeued job starts as soon as it may.
        "SchedulerParameters+=sched_interval=1,bf_interval=1,batch_sched_delay=0".to_owned(),
    ];
    if let Containment::Processes(_) = containment {
        changes.push("ProctrackType=proctrack/linuxproc".to_owned());
        changes.push("TaskPlugin=task/affinity".to_owned());
    }
    changes
}

/// slurm.conf: gpuward's generated part, then what makes it this cluster.
pub(super) fn slurm_conf(plan: &Plan<'_>, generated: &str) -> Result<String, ClusterError> {
    let mut text = format!("{generated}\n# This cluster.\n{}", fixed_part(plan));
    for line in plan.lines {
        text.push_str(line);
        text.push('\n');
    }
    for (node, port) in plan.nodes.iter().zip(plan.ports.iter().skip(1)) {
        text.push_str(&node_line(node, plan.host, *port));
    }
    let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    text.push_str(&format!(
        "PartitionName=main Nodes={} Default=YES MaxTime=INFINITE State=UP\n",
        names.join(",")
    ));
    check_keys(&text)?;
    Ok(text)
}

fn fixed_part(plan: &Plan<'_>) -> String {
    let Plan { cluster, host, ports, .. } = plan;
    let root = plan.root.display();
    let port = ports.first().copied().unwrap_or_default();
    format!(
        "ClusterName={cluster}\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={port}\n\
         # slurmctld as root: the folder needs no owner that every host has, and tests may act as any user.\n\
         SlurmUser=root\n\
         SlurmdUser=root\n\
         # A requeued job waits as long as a credential lives, by default 120 s.\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={root}/munge/socket,cred_expire=5\n\
         StateSaveLocation={root}/state\n\
         SlurmctldPidFile={root}/state/slurmctld.pid\n\
         SlurmctldLogFile={root}/log/slurmctld.log\n\
         SlurmdSpoolDir={root}/nodes/%n/spool\n\
         SlurmdPidFile={root}/nodes/%n/slurmd.pid\n\
         SlurmdLogFile={root}/log/slurmd.%n.log\n\
         # More CPUs than the host has, so that several tasks fit on a node.\n\
         SlurmdParameters=config_overrides\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\n\
         # A node that was down comes back by itself.\n\
         ReturnToService=2\n"
    )
}

fn node_line(node: &NodeSpec, host: &str, port: u16) -> String {
    let gres = match (&node.gres, node.minors.len()) {
        (Some(gres), _) => format!(" Gres={gres}"),
        (None, 0) => String::new(),
        (None, count) => format!(" Gres=gpu:{}:{count}", node.gpu_type),
    };
    let more: String = node.settings.iter().map(|setting| format!(" {setting}")).collect();
    format!(
        "NodeName={} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={}{gres}{more} State=UNKNOWN\n",
        node.name, node.cpus
    )
}

/// Slurm takes one of two equal keys silently: a test would then not test what it says.
fn check_keys(text: &str) -> Result<(), ClusterError> {
    let mut seen = HashSet::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, _)) = line.split_once('=') else { continue };
        let key = key.trim().to_ascii_lowercase();
        let may_repeat = ["nodename", "partitionname", "nodeset", "downnodes"].contains(&key.as_str());
        if !may_repeat && !seen.insert(key.clone()) {
            let hint = "settings of 'gpuward gen slurm.conf' are changed with ClusterBuilder::set";
            return Err(ClusterError::Spec(format!("'{line}': {key} is there already; {hint}")));
        }
    }
    Ok(())
}

/// gres.conf: one record for each GPU, in the order of the spec.
pub(super) fn gres_conf(nodes: &[NodeSpec], dev_of: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for node in nodes {
        let dev = dev_of(&node.name);
        let usual = |minor: &u32| format!("Name=gpu Type={} File={{dev}}/nvidia{minor}", node.gpu_type);
        let lines = node.gres_lines.clone().unwrap_or_else(|| node.minors.iter().map(usual).collect());
        for line in lines {
            text.push_str(&format!("NodeName={} {}\n", node.name, line.replace("{dev}", &dev)));
        }
    }
    text
}

/// cgroup.conf: a job reaches the GPUs it was given and no others. Memory and cores stay as they are: the nodes'
/// memory and CPUs are invented.
pub(super) const CGROUP_CONF: &str = "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gres_conf_keeps_the_order_of_the_spec() {
        let nodes = [NodeSpec::gpus("n1", 2).minors(&[3, 1]), NodeSpec::cpu_only("n2")];
        let text = gres_conf(&nodes, |node| format!("/t/{node}/dev"));
        let wanted = "NodeName=n1 Name=gpu Type=h100 File=/t/n1/dev/nvidia3\n\
                      NodeName=n1 Name=gpu Type=h100 File=/t/n1/dev/nvidia1\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        assert!(check_keys("# A=1\nA=1\nNodeName=a\nNodeName=b\n").is_ok());
        let error = check_keys("Prolog=/a\nprolog=/b\n").unwrap_err().to_string();
        assert!(error.starts_with("'prolog=/b': prolog is there already"), "{error}");
    }
}
