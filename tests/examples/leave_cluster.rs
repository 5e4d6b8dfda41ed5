//! Starts a cluster with a running job and dies without ending it, as a killed test does.

use gpuward_tests::cluster::{ClusterBuilder, ClusterError, NodeSpec};

fn main() -> Result<(), ClusterError> {
    let nodes = ["n1", "n2"].map(|name| NodeSpec::gpus(name, 4));
    let cluster = nodes.into_iter().fold(ClusterBuilder::new("killed"), ClusterBuilder::node).start()?;
    let id = cluster.sbatch(&["-N2"], "sleep 300")?;
    cluster.wait_job(id, |job| job.is("RUNNING"), std::time::Duration::from_secs(30))?;
    println!("left in {}", cluster.path().display());
    std::process::abort()
}
