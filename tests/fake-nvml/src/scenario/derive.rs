//! What a scenario need not state: ids, ports, distances, sizes of MIG instances; and the machine of one node.

use super::values::{derived_serial, derived_uuid};
use super::{Gpu, Machine, MigDevice, NumaDistance, NumaNode};

/// First driver branch that knows field 230, the recovery action.
const RECOVERY_ACTION_SINCE: u32 = 560;

impl Machine {
    pub(super) fn fill_in(&mut self) {
        if self.boot_id.is_empty() {
            self.boot_id = derived_uuid(&["boot", &self.name]);
        }
        self.fill_in_nodes();
        let branch =
            self.driver.version.split('.').next().and_then(|branch| branch.parse().ok()).unwrap_or(0);
        for (position, gpu) in (0..).zip(&mut self.gpus) {
            let slot = *gpu.slot.get_or_insert(position);
            gpu.fill_in(&self.name, slot);
            // Models state what the board can do; an older driver does not ask for it.
            gpu.recovery_action = gpu.recovery_action.filter(|_| branch >= RECOVERY_ACTION_SINCE);
        }
    }

    /// Nodes of GPU memory behind the others, and the distances of all.
    fn fill_in_nodes(&mut self) {
        let cpu = self.cpu;
        let socket_of = |node: &NumaNode| {
            let first = node.cpus.iter().next().filter(|_| cpu.count() > 0);
            (first.map_or(0, |first| cpu.socket_of(first)), true)
        };
        let mut places: Vec<(u32, bool)> = self.numa.iter().map(socket_of).collect();
        for memory in std::mem::take(&mut self.gpu_memory_nodes) {
            for (number, node) in memory.nodes.iter().enumerate() {
                let memory_mib = if number == 0 { memory.memory_mib } else { 0 };
                self.numa.push(NumaNode { node, memory_mib, ..NumaNode::default() });
                places.push((memory.socket, false));
            }
        }
        let rule = self.numa_distance.or_else(|| (self.numa.len() == 1).then(NumaDistance::default));
        let Some(rule) = rule else { return };
        for (own, node) in self.numa.iter_mut().enumerate().filter(|(_, node)| node.distances.is_empty()) {
            let others = places.iter().enumerate();
            let distance = |(other, place): (usize, &(u32, bool))| {
                const LOCAL: u32 = 10;
                if own == other { LOCAL } else { rule.between(places[own], *place) }
            };
            node.distances = others.map(distance).collect();
        }
    }

    /// Takes out what only helped to load.
    pub(super) fn forget_shorthand(&mut self) {
        self.numa_distance = None;
        for gpu in &mut self.gpus {
            gpu.serial_prefix = None;
            gpu.mig.profiles.clear();
        }
    }

    /// The same machine as another node has it: other UUIDs, serial numbers and boot id, the same for the same name.
    pub fn for_node(&self, node: &str) -> Self {
        let mut machine = self.clone();
        machine.boot_id = derived_uuid(&["boot", &self.boot_id, node]);
        for gpu in &mut machine.gpus {
            gpu.uuid = format!("GPU-{}", derived_uuid(&[&gpu.uuid, node]));
            gpu.serial = gpu.serial.as_deref().map(|serial| derived_serial(serial, node));
            for mig in &mut gpu.mig.devices {
                mig.uuid = format!("MIG-{}", derived_uuid(&[&mig.uuid, node]));
            }
        }
        machine
    }
}

impl NumaDistance {
    /// Between two nodes, each given as its socket and whether it has CPUs.
    fn between(&self, (socket_a, cpus_a): (u32, bool), (socket_b, cpus_b): (u32, bool)) -> u32 {
        match (cpus_a, cpus_b, socket_a == socket_b) {
            (false, false, _) => self.between_gpu_memory,
            (true, true, true) => self.socket,
            (true, true, false) => self.system,
            (_, _, true) => self.gpu_memory,
            (_, _, false) => self.far_gpu_memory,
        }
    }
}

impl Gpu {
    fn fill_in(&mut self, machine: &str, slot: u32) {
        let slot = slot.to_string();
        if self.uuid.is_empty() {
            self.uuid = format!("GPU-{}", derived_uuid(&["gpu", machine, &slot]));
        }
        if let (None, Some(prefix)) = (&self.serial, &self.serial_prefix) {
            // NVIDIA's serial numbers have thirteen digits.
            self.serial = Some(derived_serial(&format!("{prefix:0<13}"), &format!("{machine}/{slot}")));
        }
        for device in &mut self.mig.devices {
            let profile = self.mig.profiles.iter().find(|profile| profile.name == device.profile);
            if let Some(profile) = profile {
                let MigDevice { slices, multiprocessors, memory_mib, .. } = device;
                or_from(slices, profile.slices);
                or_from(multiprocessors, profile.multiprocessors);
                or_from(memory_mib, profile.memory_mib);
            }
            if device.uuid.is_empty() {
                let ids = [device.gpu_instance, device.compute_instance].map(|id| id.to_string());
                device.uuid = format!("MIG-{}", derived_uuid(&[&self.uuid, &ids[0], &ids[1]]));
            }
        }
    }
}

fn or_from<T: Default + PartialEq>(value: &mut T, profile: T) {
    if *value == T::default() {
        *value = profile;
    }
}
