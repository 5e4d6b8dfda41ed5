//! What sites are told to put into slurm.conf, release by release, as plain text to read and compare.
//!
//! After a wanted change run the test with `UPDATE_GOLDEN=1` and read the difference.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::slurm_conf::{Release, Site, generate};
use std::path::Path;

#[test]
fn slurm_conf_says_what_each_release_needs() {
    for name in ["20.11", "22.05", "23.02", "24.11", "26.05"] {
        let made = generate(Release::parse(name).unwrap(), &Site::default()).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/slurm.conf-{name}"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(made == wanted, "{} differs; generated is:\n{made}", path.display());
    }
}
