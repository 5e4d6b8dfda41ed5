//! Every machine in tests/scenarios as gpuward's own programs see it.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::{Reading, SnapshotFile, Topology};
use gpuward_tests::sim::Bench;

#[test]
fn a_snapshot_reads_back_as_it_was_written() {
    let bench = Bench::new("hgx-h100", "observe", "");
    let file = bench.snapshot();
    let text = serde_json::to_string(&file).unwrap();
    let again = SnapshotFile::parse(&text).unwrap();
    assert_eq!(again, file);
    assert_eq!(serde_json::to_string(&again).unwrap(), text);
    assert_eq!(file.snapshot.gpus[0].reading.handle, Reading::Value(()));
    assert_eq!(Topology::of_snapshot(&file.snapshot).notes, Vec::<String>::new());
}
