//! What `nvidia-smi -q -x` says, under the snapshot's names: the second reader where NVIDIA's Python binding is missing.
//!
//! Its elements are those of nvsmi_device_v12.dtd; one that a release lacks is not compared.

use super::values::{Flat, NOT_TOLD};
use gpuward_core::model::PciAddress;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Path, element below `<gpu>`, and what to make of its text.
const ELEMENTS: [(&str, &str, Read); 44] = [
    ("uuid", "uuid", Read::Text),
    ("minor", "minor_number", Read::Number),
    ("model", "product_name", Read::Text),
    ("serial", "serial", Read::Text),
    ("persistence", "persistence_mode", Read::Is("Enabled")),
    ("mig", "mig_mode/current_mig", Read::Is("Enabled")),
    ("temp_c", "temperature/gpu_temp", Read::Number),
    ("counters.pcie_replay", "pci/replay_counter", Read::Number),
    ("counters.remapped_corr", "remapped_rows/remapped_row_corr", Read::Number),
    ("counters.remapped_uncorr", "remapped_rows/remapped_row_unc", Read::Number),
    ("remap_pending", "remapped_rows/remapped_row_pending", Read::Is("Yes")),
    ("remap_failed", "remapped_rows/remapped_row_failure", Read::Is("Yes")),
    ("detail.board.vbios", "vbios_version", Read::Text),
    ("detail.board.part_number", "board_part_number", Read::Text),
    ("detail.board.inforom", "inforom_version/img_version", Read::Text),
    ("detail.board.pci_device_id", "pci/pci_device_id", Read::Hex),
    ("detail.board.pci_subsystem_id", "pci/pci_sub_system_id", Read::Hex),
    ("detail.memory.total_mib", "fb_memory_usage/total", Read::Number),
    ("detail.memory.reserved_mib", "fb_memory_usage/reserved", Read::Number),
    ("detail.memory.used_mib", "fb_memory_usage/used", Read::Number),
    ("detail.memory.bar1_mib", "bar1_memory_usage/total", Read::Number),
    ("detail.memory.bar1_used_mib", "bar1_memory_usage/used", Read::Number),
    ("detail.power.draw_mw", "gpu_power_readings/power_draw", Read::Milli),
    ("detail.power.default_limit_mw", "gpu_power_readings/default_power_limit", Read::Milli),
    ("detail.power.limit_mw", "gpu_power_readings/requested_power_limit", Read::Milli),
    ("detail.power.enforced_limit_mw", "gpu_power_readings/current_power_limit", Read::Milli),
    ("detail.power.min_limit_mw", "gpu_power_readings/min_power_limit", Read::Milli),
    ("detail.power.max_limit_mw", "gpu_power_readings/max_power_limit", Read::Milli),
    ("detail.temp.memory_c", "temperature/memory_temp", Read::Number),
    ("detail.temp.shutdown_c", "temperature/gpu_temp_max_threshold", Read::Number),
    ("detail.temp.slowdown_c", "temperature/gpu_temp_slow_threshold", Read::Number),
    ("detail.temp.gpu_max_c", "temperature/gpu_temp_max_gpu_threshold", Read::Number),
    ("detail.temp.memory_max_c", "temperature/gpu_temp_max_mem_threshold", Read::Number),
    ("detail.clocks.pstate", "performance_state", Read::Number),
    ("detail.ecc.enabled", "ecc_mode/current_ecc", Read::Is("Enabled")),
    ("detail.ecc.pending", "ecc_mode/pending_ecc", Read::Is("Enabled")),
    ("detail.ecc.sram_threshold_exceeded", "ecc_errors/aggregate/sram_threshold_exceeded", Read::Is("Yes")),
    ("detail.pcie.generation", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", Read::Number),
    ("detail.pcie.max_generation", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", Read::Number),
    ("detail.pcie.gpu_max_generation", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", Read::Number),
    ("detail.pcie.width", "pci/pci_gpu_link_info/link_widths/current_link_width", Read::Number),
    ("detail.pcie.max_width", "pci/pci_gpu_link_info/link_widths/max_link_width", Read::Number),
    ("detail.accounting", "accounting_mode", Read::Is("Enabled")),
    ("detail.accounting_buffer", "accounting_mode_buffer_size", Read::Number),
];

/// Several elements that make one value.
const LISTS: [(&str, &[&str]); 5] = [
    (
        "detail.clocks.now_mhz",
        &["clocks/graphics_clock", "clocks/sm_clock", "clocks/mem_clock", "clocks/video_clock"],
    ),
    (
        "detail.clocks.max_mhz",
        &[
            "max_clocks/graphics_clock",
            "max_clocks/sm_clock",
            "max_clocks/mem_clock",
            "max_clocks/video_clock",
        ],
    ),
    ("detail.clocks.app_mhz", &["applications_clocks/graphics_clock", "applications_clocks/mem_clock"]),
    ("detail.clocks.util_pct", &["utilization/gpu_util", "utilization/memory_util"]),
    (
        "detail.ecc.remap_histogram",
        &[
            "remapped_rows/row_remapper_histogram/row_remapper_histogram_max",
            "remapped_rows/row_remapper_histogram/row_remapper_histogram_high",
            "remapped_rows/row_remapper_histogram/row_remapper_histogram_partial",
            "remapped_rows/row_remapper_histogram/row_remapper_histogram_low",
            "remapped_rows/row_remapper_histogram/row_remapper_histogram_none",
        ],
    ),
];

/// How a text is read.
#[derive(Debug, Clone, Copy)]
enum Read {
    Text,
    /// Whole number, with whatever letters stand around it: "81559 MiB", "16x", "P0".
    Number,
    /// Watts, in thousandths.
    Milli,
    Hex,
    /// Whether the text is this word.
    Is(&'static str),
}

impl Read {
    fn value(self, text: &str) -> Option<Value> {
        let digits = text.trim_start_matches(|letter: char| !letter.is_ascii_digit() && letter != '-');
        let end = digits.find(|letter: char| !letter.is_ascii_digit() && !"-.".contains(letter));
        let digits = &digits[..end.unwrap_or(digits.len())];
        match self {
            Read::Text => Some(json!(text)),
            Read::Number => digits.parse::<i64>().ok().map(|number| json!(number)),
            Read::Milli => digits.parse::<f64>().ok().map(|watts| json!((watts * 1000.0).round())),
            Read::Hex => {
                u32::from_str_radix(text.trim_start_matches("0x"), 16).ok().map(|number| json!(number))
            }
            Read::Is(word) => Some(json!(text == word)),
        }
    }
}

/// What the log says: of the node, and of each GPU by its address.
pub fn parse(xml: &str) -> (Flat, BTreeMap<String, Flat>) {
    let mut node = Flat::new();
    let (before, gpus) = xml.split_once("<gpu id=").unwrap_or((xml, ""));
    let elements = elements(before);
    let text = |name: &str| elements.get(&format!("nvidia_smi_log/{name}")).cloned();
    if let Some(version) = text("driver_version") {
        node.insert("driver_version".into(), json!({ "value": version }));
    }
    if let Some(count) = text("attached_gpus").and_then(|count| count.parse::<u64>().ok()) {
        node.insert("gpu_count".into(), json!({ "value": count }));
    }
    let each = gpus.split("<gpu id=").filter_map(|part| {
        let id = part.split('"').nth(1)?;
        let pci: PciAddress = id.parse().ok()?;
        Some((pci.to_string(), gpu(part.split_once('>')?.1)))
    });
    (node, each.collect())
}

fn gpu(xml: &str) -> Flat {
    let elements = elements(xml);
    let mut flat = Flat::new();
    let read = |element: &str, how: Read| {
        let text = elements.get(element)?;
        // "[N/A]", "N/A", "Requested functionality has been deprecated", "Unknown Error".
        let told = !text.contains("N/A") && !text.contains("Requested") && !text.contains("Error");
        if told { how.value(text).map(Some) } else { Some(None) }
    };
    for (path, element, how) in ELEMENTS {
        // Older releases call the table power_readings, and the limits' names differ.
        let older = element.replace("gpu_power_readings", "power_readings");
        if let Some(value) = read(element, how).or_else(|| read(&older, how)) {
            flat.insert(
                path.to_owned(),
                value.map_or_else(|| json!(NOT_TOLD), |value| json!({ "value": value })),
            );
        }
    }
    for (path, parts) in LISTS {
        let parts: Option<Vec<Option<Value>>> =
            parts.iter().map(|element| read(element, Read::Number)).collect();
        if let Some(parts) = parts {
            let all: Option<Vec<Value>> = parts.into_iter().collect();
            flat.insert(path.to_owned(), all.map_or_else(|| json!(NOT_TOLD), |all| json!({ "value": all })));
        }
    }
    flat
}

/// Texts by the path of their elements. The log has no other nesting than elements, and no text beside elements.
fn elements(xml: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut path: Vec<&str> = Vec::new();
    for part in xml.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else { continue };
        if tag.starts_with(['?', '!']) || tag.ends_with('/') {
            continue;
        }
        if tag.starts_with('/') {
            path.pop();
            continue;
        }
        path.push(tag.split_whitespace().next().unwrap_or_default());
        let text = text.trim();
        if !text.is_empty() {
            found.entry(path.join("/")).or_insert_with(|| text.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
    <driver_version>570.124.06</driver_version>
    <attached_gpus>2</attached_gpus>
    <gpu id="00000000:1B:00.0">
        <product_name>NVIDIA H100 80GB HBM3</product_name>
        <persistence_mode>Enabled</persistence_mode>
        <pci><pci_device_id>233010DE</pci_device_id></pci>
        <temperature><gpu_temp>31 C</gpu_temp><memory_temp>N/A</memory_temp></temperature>
        <gpu_power_readings><power_draw>68.90 W</power_draw></gpu_power_readings>
        <utilization><gpu_util>0 %</gpu_util><memory_util>1 %</memory_util></utilization>
    </gpu>
    <gpu id="00000000:3D:00.0"><performance_state>P8</performance_state></gpu>
</nvidia_smi_log>"#;

    #[test]
    fn the_log_is_read_under_the_snapshots_names() {
        let (node, gpus) = parse(LOG);
        assert_eq!(node["driver_version"], json!({"value": "570.124.06"}));
        assert_eq!(node["gpu_count"], json!({"value": 2}));
        let first = &gpus["0000:1b:00.0"];
        assert_eq!(first["model"], json!({"value": "NVIDIA H100 80GB HBM3"}));
        assert_eq!(first["persistence"], json!({"value": true}));
        assert_eq!(first["detail.board.pci_device_id"], json!({"value": 0x2330_10de}));
        assert_eq!(first["temp_c"], json!({"value": 31}));
        assert_eq!(first["detail.temp.memory_c"], json!("n/a"));
        assert_eq!(first["detail.power.draw_mw"], json!({"value": 68900.0}));
        assert_eq!(first["detail.clocks.util_pct"], json!({"value": [0, 1]}));
        assert_eq!(gpus["0000:3d:00.0"]["detail.clocks.pstate"], json!({"value": 8}));
        assert_eq!(gpus["0000:3d:00.0"].len(), 1, "what it does not say is not compared");
    }
}
