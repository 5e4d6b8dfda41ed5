//! The text of `nvidia-smi topo -m`.

use super::{line_is_there, shown, text};
use gpuward_core::model::Topology;
use gpuward_core::model::topology::Path;
use gpuward_core::model::topology::matrix::{self, MatrixError};

pub const WORDS: &[&str] = &[
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n",
    "GPU0\t X \tNV4\t0-15\t0\tN/A\n",
    "NIC0\t",
    "mlx5_0",
    "PIX",
    "PXB",
    "PHB",
    "NODE",
    "SYS",
    "NV18",
    " X ",
    "GPU10",
    "NIC8NIC9",
    "# completeness:",
    "\tGPU0\n",
    "?",
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n",
    "0-8191",
    "\tGPU0\tNIC8NIC9\nGPU0\tX\tNV1",
];

/// A topology is square and symmetric, its texts stay on their lines, and it reads back from JSON.
pub fn check(data: &[u8]) {
    let text = text(data);
    match matrix::parse(&text) {
        Ok(topology) => {
            topology_is_sound(&topology);
            topology.nics.iter().flat_map(|nic| &nic.device).for_each(|device| shown("a device", device, 80));
        }
        Err(error) => {
            shown("the error", &error.to_string(), 400);
            if let MatrixError::Line { line, .. } = error {
                line_is_there(line, &text);
            }
        }
    }
}

/// True of every topology, whatever it was made from.
pub fn topology_is_sound(topology: &Topology) {
    let names = topology.device_names();
    let count = names.len();
    assert!(count <= 1024, "{count} devices");
    assert!(topology.paths.len() == count && topology.paths.iter().all(|row| row.len() == count));
    for a in 0..count {
        assert_eq!(topology.path(a, a), Path::Same);
        assert!(
            (0..a).all(|b| topology.path(a, b) == topology.path(b, a) && topology.path(a, b) != Path::Same)
        );
    }
    names.iter().for_each(|name| shown("the name of a device", name, 80));
    topology.notes.iter().for_each(|note| shown("a note", note, 128 * 1024));
    let json = serde_json::to_string(topology).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Topology>(&json).ok().as_ref(), Some(topology));
}
