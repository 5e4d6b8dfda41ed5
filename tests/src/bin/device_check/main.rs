//! What `tests/device/check.sh` cannot do in shell: times NVML's calls, runs prolog and epilog, compares snapshots with a
//! second opinion, and writes the table. Changes no setting of any GPU.

mod calls;
mod jobs;
mod machine;
mod nvml;
mod report;
mod rows;
mod sets;
mod smi;
mod trials;
mod values;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage, by tests/device/check.sh:
       device_check machine SCENARIO FOLDER     makes a simulated machine
       device_check calls LIBRARY               times NVML's calls, one JSON text a line
       device_check tree CALLS FOLDER           /sys and /proc as NVML tells the GPUs, where the host's show none
       device_check jobs PROGRAMS SITE SNAPSHOT runs prolog and epilog
       device_check moved WORK ROUND            exit code 0 where a comparison is worth another round
       device_check report WORK OUT             prints and writes the table
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["machine", scenario, folder] => machine::make(Path::new(scenario), Path::new(folder)).map(|()| 0),
        ["calls", library] => calls::run(Path::new(library)).map(|()| 0),
        ["tree", calls, folder] => machine::tree(Path::new(calls), Path::new(folder)).map(|()| 0),
        ["jobs", programs, site, snapshot] => {
            jobs::run(Path::new(programs), Path::new(site), Path::new(snapshot)).map(|()| 0)
        }
        ["moved", work, round] => Ok(u8::from(!report::moved(Path::new(work), round))),
        ["report", work, out] => report::run(Path::new(work), Path::new(out)),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("device_check: {error}");
            ExitCode::from(3)
        }
    }
}
