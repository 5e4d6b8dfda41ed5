//! The registers of Xid 74 (NVLink 1 to 4).
//!
//! Seven words; the first, third, fourth and fifth count. Bits and meanings: NVIDIA's Xid catalogue, for Hopper. All
//! words 0, or a bit that is not listed: report it.

use crate::health::action::Action;

/// What the registers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// What to do.
    pub action: Action,
    /// Why, for people.
    pub why: &'static str,
}

/// Meanings, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bit {
    Ignore,
    Corrected,
    Secondary,
    SecondaryReset,
    Unlisted,
    Repeated,
    RepeatedDiagnostic,
    Signal,
    Connection,
    EccHardware,
}

/// More than twice on one link means the vendor.
const ECC_REPORT_ABOVE: u32 = 2;

/// Reads the registers of a link that has printed Xid 74 `times` times; `None` where there are not seven words.
pub fn read(registers: &[u32], times: u32) -> Option<Reading> {
    let &[first, _, third, fourth, fifth, _, _] = registers else { return None };
    let words = [(1, first), (3, third), (4, fourth), (5, fifth)];
    let bits = words.into_iter().flat_map(|(word, value)| {
        (0..32u32).filter(move |bit| value >> bit & 1 == 1).map(move |bit| meaning(word, bit))
    });
    Some(explain(bits.max().unwrap_or(Bit::Unlisted), times))
}

fn meaning(word: u32, bit: u32) -> Bit {
    match (word, bit) {
        (1, 0 | 23 | 30) => Bit::Ignore,
        (1, 1 | 20) | (4, 16 | 17) => Bit::Secondary,
        (4, 18) => Bit::SecondaryReset,
        (1, 4 | 5) | (3, 0 | 1 | 2 | 6) | (5, 18 | 19 | 21 | 22 | 24 | 25 | 27 | 28) => Bit::EccHardware,
        (1, 8 | 9 | 12 | 16 | 17 | 24 | 28) => Bit::Connection,
        (1, 21 | 22) => Bit::Signal,
        (1, 27 | 29) | (3, 17 | 18) => Bit::Repeated,
        (3, 16 | 19) => Bit::RepeatedDiagnostic,
        (5, 20 | 23 | 26 | 29) => Bit::Corrected,
        _ => Bit::Unlisted,
    }
}

fn explain(bit: Bit, times: u32) -> Reading {
    let (action, why) = match bit {
        Bit::Ignore => (Action::Ignore, "the registers name nothing that matters"),
        Bit::Corrected => {
            (Action::Info, "a threshold of corrected errors was passed, none was uncorrectable")
        }
        Bit::Secondary => {
            (Action::Warn, "a consequence of another error: follow the other XID or SXid; alone, report it")
        }
        Bit::SecondaryReset => {
            (Action::DrainReset, "a consequence of another error, but the fabric must be reset")
        }
        Bit::Unlisted => (Action::DrainReset, "the registers name nothing known: reset, and report it"),
        Bit::Repeated => (Action::DrainReset, "if it repeats, report it"),
        Bit::RepeatedDiagnostic => {
            (Action::DrainReset, "if it repeats, run the field diagnostic and report it")
        }
        Bit::Signal => {
            (Action::DrainReset, "marginal signal: other errors first, then connections and field diagnostic")
        }
        Bit::Connection => {
            (Action::DrainReset, "possibly hardware: look at the connections, reseat, run the diagnostic")
        }
        Bit::EccHardware if times > ECC_REPORT_ABOVE => {
            (Action::DrainRma, "ECC or parity hardware, more than twice on one link: report it")
        }
        Bit::EccHardware => (Action::DrainReset, "ECC or parity hardware"),
    };
    Reading { action, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(word: usize, bit: u32, times: u32) -> Action {
        let mut registers = [0u32; 7];
        registers[word - 1] = 1 << bit;
        read(&registers, times).unwrap().action
    }

    #[test]
    fn each_bit_means_what_the_catalogue_says() {
        for bit in [0, 23, 30] {
            assert_eq!(action(1, bit, 1), Action::Ignore);
        }
        for (word, bit) in [(1, 1), (1, 20), (4, 16), (4, 17)] {
            assert_eq!(action(word, bit, 1), Action::Warn, "{word} {bit}");
        }
        assert_eq!(action(5, 20, 1), Action::Info);
        for (word, bit) in [(1, 8), (1, 21), (1, 27), (3, 16), (4, 18), (3, 13), (1, 31)] {
            assert_eq!(action(word, bit, 1), Action::DrainReset, "{word} {bit}");
        }
    }

    #[test]
    fn ecc_hardware_goes_to_the_vendor_from_the_third_time_on() {
        for (word, bit) in [(1, 4), (3, 6), (5, 28)] {
            assert_eq!(action(word, bit, 2), Action::DrainReset);
            assert_eq!(action(word, bit, 3), Action::DrainRma);
        }
    }

    #[test]
    fn the_worst_bit_decides_and_words_without_meaning_do_not_count() {
        assert_eq!(read(&[1 | 1 << 4, 0, 0, 0, 0, 0, 0], 3).unwrap().action, Action::DrainRma);
        assert_eq!(read(&[1, u32::MAX, 0, 0, 0, u32::MAX, u32::MAX], 1).unwrap().action, Action::Ignore);
        assert_eq!(read(&[0; 7], 1).unwrap().action, Action::DrainReset, "no bit at all: report");
        assert_eq!(read(&[1; 6], 1), None);
    }
}
