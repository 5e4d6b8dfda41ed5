//! Reads temperature and energy of the first GPU through the library named by the argument: a client in a process of
//! its own.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let library = std::env::args_os().nth(1).ok_or("usage: read_first_gpu LIBRARY")?;
    let nvml = Nvml::builder().lib_path(&library).init()?;
    let device = nvml.device_by_index(0)?;
    println!("temperature {}", device.temperature(TemperatureSensor::Gpu)?);
    println!("energy {}", device.total_energy_consumption()?);
    Ok(())
}
