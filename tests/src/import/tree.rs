//! A PCI tree that shows the distances of a listing.

use super::cpus::groups;
use gpuward_core::model::Topology;
use gpuward_core::model::topology::PathClass;
use nvidia_ml::scenario::{PciAddress, PcieSwitch, RootPort};

/// The tree, and where each device is.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub root_ports: Vec<RootPort>,
    pub switches: Vec<PcieSwitch>,
    /// Address and port above of each device.
    pub devices: Vec<(PciAddress, PciAddress)>,
    next_bus: u32,
}

/// Builds it: one root bus for what is PHB or nearer, a port for what is PXB or nearer, switches for what is PIX.
pub(super) fn tree(topology: &Topology, nodes: &[Option<u32>]) -> Tree {
    let mut tree = Tree {
        devices: vec![(PciAddress::default(), PciAddress::default()); topology.paths.len()],
        // Bus 0 is the chipset's on most machines.
        next_bus: 0x10,
        ..Tree::default()
    };
    let below_a_port = groups(topology, PathClass::Pxb);
    let below_a_switch = groups(topology, PathClass::Pix);
    let within = |group: &Vec<usize>, all: &[Vec<usize>]| -> Vec<Vec<usize>> {
        all.iter().filter(|part| group.contains(&part[0])).cloned().collect()
    };
    for bridge in groups(topology, PathClass::Phb) {
        let root_bus = tree.bus();
        let numa = bridge.iter().find_map(|&device| nodes[device]).and_then(|node| i32::try_from(node).ok());
        for (device, group) in (1..).zip(within(&bridge, &below_a_port)) {
            let at = PciAddress { device, ..root_bus };
            tree.root_ports.push(RootPort { at, numa: numa.unwrap_or(-1), bare: false });
            tree.below(at, &within(&group, &below_a_switch));
        }
    }
    tree
}

impl Tree {
    /// The next free bus, as the address of its device 0.
    fn bus(&mut self) -> PciAddress {
        let number = self.next_bus;
        self.next_bus += 1;
        let bus = u8::try_from(number % 256).unwrap_or(0);
        PciAddress { domain: number / 256, bus, device: 0, function: 0 }
    }

    /// Hangs groups of devices below a port: each group is one switch, several are switches below a switch.
    fn below(&mut self, port: PciAddress, groups: &[Vec<usize>]) {
        match groups {
            [only] if only.len() == 1 => self.plug(only[0], port),
            [only] => {
                let ports = self.switch(port, only.len());
                for (&device, port) in only.iter().zip(ports) {
                    self.plug(device, port);
                }
            }
            several => {
                let ports = self.switch(port, several.len());
                for (group, port) in several.iter().zip(ports) {
                    // A device alone gets a switch, too: else it were PIX to its neighbours.
                    let ports = self.switch(port, group.len());
                    for (&device, port) in group.iter().zip(ports) {
                        self.plug(device, port);
                    }
                }
            }
        }
    }

    fn switch(&mut self, under: PciAddress, ports: usize) -> Vec<PciAddress> {
        let up = self.bus();
        let inner = self.bus();
        let down: Vec<PciAddress> = (0u8..)
            .take(ports)
            .map(|number| PciAddress { device: number % 32, function: number / 32, ..inner })
            .collect();
        self.switches.push(PcieSwitch { under, up, down: down.clone() });
        down
    }

    fn plug(&mut self, device: usize, port: PciAddress) {
        let at = self.bus();
        self.devices[device] = (at, port);
    }
}
