//! Every machine of tests/scenarios is healthy, so gpuward must find nothing on any of them.

use std::path::Path;

use gpuward_tests::sim::{Bench, NODE};

#[cfg(test)]
mod healthy {
    use super::*;

    fn machines() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let machines = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        machines.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn no_machine_of_the_park_is_refused_a_job_or_reported() {
        let machines = machines();
        assert!(machines.len() > 20);
        for name in machines {
            let bench = Bench::new(&name, "drain", "");
            let gpus = bench.all_gpus();
            let prolog = bench.prolog(7, &gpus);
            assert_eq!(prolog.code, Some(0), "{name}: {}\n{}", prolog.stderr, bench.node.log());
            let log = bench.node.log();
            assert!(!log.contains("WARN") && !log.contains("ERROR"), "{name}: {log}");
            let epilog = bench.epilog(7, &gpus);
            assert_eq!(epilog.code, Some(0), "{name}: {}\n{}", epilog.stderr, bench.node.log());
            let mut check = bench.command("gpuward", 7, "");
            let check = check.args(["check", "--node", NODE, "--config"]).arg(bench.path("etc/gpuward.toml"));
            let said = check.stdout(std::process::Stdio::piped()).output().unwrap();
            let said = (said.status.code(), String::from_utf8(said.stdout).unwrap());
            let healthy = format!("node {NODE}: pass, {} GPUs looked at", bench.node.machine.gpus.len());
            assert!(said.0 == Some(0) && said.1.starts_with(&healthy), "{name}: {said:?}");
            assert_eq!(bench.scontrol_calls(), Vec::<String>::new(), "{name}");
            let [record] = &bench.node.records()[..] else { panic!("{name}: {}", bench.node.log()) };
            assert_eq!(record.gpus.len(), bench.node.machine.gpus.len(), "{name}");
        }
    }
}
