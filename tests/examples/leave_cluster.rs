//! Starts a cluster with a running job and dies without ending it, as a killed test does.

use gpuward_tests::cluster::{ClusterBuilder, ClusterError, NodeSpec};

fn main() -> Result<(), ClusterError> {
    let nodes = [NodeSpec::gpus("n1", 4), NodeSpec::gpus("n2", 4).own_dev()];
    let cluster = nodes.into_iter().fold(ClusterBuilder::new("killed"), ClusterBuilder::node).start()?;
    let id = cluster.sbatch(&["-N2"], "sleep 300")?;
    cluster.wait_job(id, |job| job.is("RUNNING"), std::time::Duration::from_secs(30))?;
    println!("left in {}", cluster.path().display());
    std::process::abort()
}
