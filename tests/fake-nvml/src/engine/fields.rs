//! `nvmlDeviceGetFieldValues`: what each field id means. Ids as in nvml.h; three moved at driver 580.82.

use super::{Answer, Device, EccKind, link_count};
use crate::code::Code;
use crate::scenario::{LinkErrors, ThrottleNs};

/// A value with NVML's type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldValue {
    /// `unsigned int`.
    Uint(u32),
    /// `unsigned long long`.
    Ulonglong(u64),
    /// `int`.
    Sint(i32),
}

use FieldValue::{Sint, Uint, Ulonglong};

/// Links in a total (`scopeId` says so in the newer fields).
const ALL_LINKS: u32 = u32::MAX;

impl Device<'_> {
    /// One field. `scope` is a link number where the field wants one.
    pub fn field(&self, id: u32, scope: u32) -> Answer<FieldValue> {
        // Memory size and energy aside nothing here exists for a MIG device.
        let gpu = self.whole()?;
        match id {
            3..=6 => self.ecc_field(id),
            29..=31 => self.retired_field(id),
            32..=59 | 96..=119 | 148..=163 => self.nvlink_error_field(id, scope),
            170..=172 | 231..=233 => self.c2c_field(id, scope),
            201..=222 | 235..=250 => self.nvlink5_field(id, scope),
            74..=79 | 251..=253 | 269..=271 => self.throttle_field(id),
            82 => self.memory_temperature_c().map(Uint),
            83 | 191 => self.energy_mj().map(Ulonglong),
            84..=89 | 132..=137 | 90 | 91 | 138..=141 | 164..=166 => self.nvlink_field(id, scope),
            94 => Ok(Uint(gpu.pcie.replay)),
            95 => Ok(Uint(gpu.pcie.replay_rollover)),
            142..=145 => self.remap_field(id),
            169 => Ok(Uint(gpu.pcie.l0_to_recovery)),
            173..=183 => Ok(Uint(gpu.pcie.errors[(id - 173) as usize])),
            185..=190 | 192 => self.power_field(id),
            193..=196 => {
                let limits = gpu.temp.tlimit_c.ok_or(Code::NOT_SUPPORTED)?;
                Ok(Sint(limits[(id - 193) as usize]))
            }
            197 => Ok(Ulonglong(self.traffic(gpu.pcie.tx_bytes[0], gpu.pcie.tx_bytes[1]))),
            198 => Ok(Ulonglong(self.traffic(gpu.pcie.rx_bytes[0], gpu.pcie.rx_bytes[1]))),
            230 => gpu.recovery_action.map(Uint).ok_or(Code::NOT_SUPPORTED),
            1 => mode(gpu.ecc.enabled),
            2 => mode(gpu.ecc.enabled.map(|now| gpu.ecc.pending.unwrap_or(now))),
            0 => Err(Code::INVALID_ARGUMENT),
            _ if id >= self.field_end() => Err(Code::INVALID_ARGUMENT),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    /// Whether the driver has the numbering of CUDA 13.0 Update 1 and later.
    fn new_numbering(&self) -> bool {
        const BORDER: [u32; 2] = [580, 82];
        let parts = self.machine.driver.version.split('.').map(|part| part.parse().unwrap_or(0));
        parts.take(2).ge(BORDER)
    }

    /// First id that the driver does not know.
    fn field_end(&self) -> u32 {
        if self.new_numbering() { 274 } else { 256 }
    }

    fn ecc_field(&self, id: u32) -> Answer<FieldValue> {
        let kind = EccKind { uncorrected: id % 2 == 0, aggregate: id >= 5 };
        self.all_errors(kind).map(Ulonglong)
    }

    fn retired_field(&self, id: u32) -> Answer<FieldValue> {
        let retired = self.gpu.retired.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        Ok(Uint(match id {
            29 => count(retired.single_bit.len()),
            30 => count(retired.double_bit.len()),
            _ => u32::from(retired.pending),
        }))
    }

    fn remap_field(&self, id: u32) -> Answer<FieldValue> {
        let remap = self.remap()?;
        Ok(Uint(match id {
            142 => remap.corr,
            143 => remap.uncorr,
            144 => u32::from(remap.pending),
            _ => u32::from(remap.failure),
        }))
    }

    fn power_field(&self, id: u32) -> Answer<FieldValue> {
        let power = &self.gpu.power;
        Ok(Uint(match id {
            185 | 186 => u32::try_from(self.power_mw()).unwrap_or(u32::MAX),
            187 => power.min_limit_mw,
            188 => power.max_limit_mw,
            189 => power.default_limit_mw,
            190 => self.enforced_limit_mw(),
            _ => self.power_limit_mw(),
        }))
    }

    fn throttle_field(&self, id: u32) -> Answer<FieldValue> {
        let ThrottleNs { power, thermal, sync_boost, board_limit, low_utilization, reliability, .. } =
            self.gpu.clocks.throttle_ns;
        let first = if self.new_numbering() { 269 } else { 251 };
        let ns = match id {
            74 => power,
            75 => thermal,
            76 => sync_boost,
            77 => board_limit,
            78 => low_utilization,
            79 => reliability,
            _ if id == first => self.gpu.clocks.throttle_ns.sw_thermal,
            _ if id == first + 1 => self.gpu.clocks.throttle_ns.hw_thermal,
            _ if id == first + 2 => self.gpu.clocks.throttle_ns.hw_power_brake,
            // With the new numbers 251 to 253 are power smoothing, which no model here has;
            // an older driver does not know 269 to 271.
            251..=253 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        Ok(Ulonglong(ns))
    }

    fn nvlink_field(&self, id: u32, scope: u32) -> Answer<FieldValue> {
        let gpu = self.gpu;
        let version = gpu.nvlink.version.ok_or(Code::NOT_SUPPORTED)?;
        let speed = |link| Ok(Uint(if self.link_up(link)? { gpu.nvlink.speed_mbps } else { 0 }));
        match id {
            84..=89 => speed(id - 84),
            132..=137 => speed(id - 132 + 6),
            90 => Ok(Uint(gpu.nvlink.speed_mbps)),
            91 => Ok(Uint(link_count(gpu))),
            138..=141 => self.link_traffic_kib(scope).map(Ulonglong),
            164 => speed(scope),
            165 => self.link_up(scope).map(|up| Uint(u32::from(up))),
            _ => self.link(scope).map(|_| Uint(version)),
        }
    }

    /// Traffic of a link, or of all, in one direction. A link that is down has no counter to read; the total goes on
    /// counting it, as a counter does not fall. Both are estimates of ours.
    fn link_traffic_kib(&self, scope: u32) -> Answer<u64> {
        let of_one = self.traffic(0, self.gpu.nvlink.busy_kib_per_s);
        match scope {
            ALL_LINKS => Ok(of_one * u64::from(link_count(self.gpu))),
            link if self.link_up(link)? => Ok(of_one),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    fn nvlink_error_field(&self, id: u32, scope: u32) -> Answer<FieldValue> {
        // Blackwell has other counters instead of these three (nvml.h).
        match self.gpu.nvlink.version {
            None => return Err(Code::NOT_SUPPORTED),
            Some(5..) if id >= 161 => return Err(Code::NOT_SUPPORTED),
            Some(_) => {}
        }
        let (link, get) = error_counter(id, scope);
        let sum = match link {
            Some(ALL_LINKS) | None => self.gpu.nvlink.errors.iter().map(get).sum(),
            Some(link) => get(&self.link_errors(link)?),
        };
        Ok(Ulonglong(sum))
    }

    /// Counters that NVLink has from version 5 on.
    fn nvlink5_field(&self, id: u32, scope: u32) -> Answer<FieldValue> {
        if self.gpu.nvlink.version.is_none_or(|version| version < 5) {
            return Err(Code::NOT_SUPPORTED);
        }
        let get = |errors: &LinkErrors| match id {
            206..=215 => errors.packets[(id - 206) as usize],
            219 => errors.effective,
            221 => errors.symbol,
            _ => errors.fec[(id - 235) as usize],
        };
        match id {
            // Bytes sent and received; packets, and the raw rates by lane, are not simulated.
            202 | 204 => self.link_traffic_kib(scope).map(|kib| Ulonglong(kib << 10)),
            201 | 203 | 205 | 216 | 217 => Err(Code::NOT_SUPPORTED),
            // A rate of all links together says nothing: our estimate that it is refused.
            218 | 220 | 222 => {
                let [mantissa, exponent] = self.link_errors(scope)?.ber[((id - 218) / 2) as usize];
                Ok(Ulonglong(u64::from(mantissa & 0xf) << 8 | u64::from(exponent)))
            }
            _ if scope == ALL_LINKS => Ok(Ulonglong(self.gpu.nvlink.errors.iter().map(get).sum())),
            _ => Ok(Ulonglong(get(&self.link_errors(scope)?))),
        }
    }

    /// Links between CPU and GPU: count, then status and bandwidth by link, then errors of all links.
    fn c2c_field(&self, id: u32, scope: u32) -> Answer<FieldValue> {
        let c2c = self.gpu.c2c.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let up = || match scope < c2c.links {
            true => Ok(!c2c.down.0.contains(&scope)),
            false => Err(Code::INVALID_ARGUMENT),
        };
        match id {
            170 => Ok(Uint(c2c.links)),
            171 => Ok(Uint(up()?.into())),
            172 => Ok(Uint(if up()? { c2c.max_mbps } else { 0 })),
            _ => Ok(Ulonglong(c2c.errors[(id - 231) as usize])),
        }
    }
}

type Counter = fn(&LinkErrors) -> u64;

/// Link number (none for a total) and counter of an NVLink error field.
fn error_counter(id: u32, scope: u32) -> (Option<u32>, Counter) {
    const KINDS: [Counter; 4] = [|e| e.crc_flit, |e| e.crc_data, |e| e.replay, |e| e.recovery];
    let one = |first: u32, per_kind: u32| ((id - first) / per_kind, (id - first) % per_kind);
    match id {
        // Six links and a total for each of four kinds, then links 6 to 11 of the same kinds.
        32..=59 => {
            let (kind, link) = one(32, 7);
            ((link < 6).then_some(link), KINDS[kind as usize])
        }
        96..=119 => {
            let (kind, link) = one(96, 6);
            (Some(link + 6), KINDS[kind as usize])
        }
        148..=160 => ((id < 160).then(|| id - 148), |e| e.ecc_data),
        161 => (Some(scope), |e| e.replay),
        162 => (Some(scope), |e| e.recovery),
        _ => (Some(scope), |e| e.crc_flit),
    }
}

fn mode(state: Option<bool>) -> Answer<FieldValue> {
    state.map(|on| Uint(u32::from(on))).ok_or(Code::NOT_SUPPORTED)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
