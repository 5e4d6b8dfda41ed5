//! Reads a fake from eight threads until a file appears, and says on standard output what it saw of each GPU: a client
//! in a process of its own for the test of concurrent use. `hammer LIBRARY STOP_FILE`.
//!
//! Counters that fell and values that nobody wrote are told as lines that begin with "bad".

use std::path::Path;
use std::thread;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

const THREADS: u32 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [library, stop] = &arguments[..] else { return Err("usage: hammer LIBRARY STOP_FILE".into()) };
    let nvml = Nvml::builder().lib_path(library).init()?;
    println!("ready");
    let (nvml, stop) = (&nvml, Path::new(stop));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || look(nvml, stop));
        }
    });
    Ok(())
}

/// GPU 0 is the one that the writer makes sick: 31, 77 or lost. All others are healthy throughout.
fn look(nvml: &Nvml, stop: &Path) {
    let mut energy_mj = [0; 8];
    let mut rounds = 0_u64;
    while !stop.exists() || rounds == 0 {
        for (index, last) in (0..).zip(&mut energy_mj) {
            let answer = nvml.device_by_index(index).and_then(|device| {
                Ok((device.temperature(TemperatureSensor::Gpu)?, device.total_energy_consumption()?))
            });
            match answer {
                Ok((31, energy)) if energy >= *last => *last = energy,
                Ok((77, energy)) if index == 0 && energy >= *last => *last = energy,
                Err(NvmlError::GpuLost) if index == 0 => {}
                other => println!("bad: GPU {index}: {other:?} after {last} mJ"),
            }
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
}
