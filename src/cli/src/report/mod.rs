//! Text for people: tables whose columns line up, with `-` for what is not known.

mod table;

pub use table::Table;

/// Energy for people: `1.2 kJ`, `3.4 MJ`; small values in J.
pub fn energy(energy_mj: Option<u64>) -> String {
    let Some(millijoule) = energy_mj else { return "-".into() };
    let joule = millijoule / 1000;
    match joule {
        0..=9_999 => format!("{joule} J"),
        10_000..=9_999_999 => format!("{}.{} kJ", joule / 1000, joule % 1000 / 100),
        _ => format!("{}.{} MJ", joule / 1_000_000, joule % 1_000_000 / 100_000),
    }
}

/// A time span for people: `0:00:07`, `2-03:04:05` like Slurm's.
pub fn elapsed(elapsed_ms: Option<u64>) -> String {
    let Some(seconds) = elapsed_ms.map(|ms| ms / 1000) else { return "-".into() };
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest % 3600 / 60, rest % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_a_dash_and_units_follow_the_size() {
        assert_eq!(
            (energy(None), energy(Some(0)), energy(Some(9_999_999))),
            ("-".into(), "0 J".into(), "9999 J".into())
        );
        assert_eq!(
            (energy(Some(12_345_678)), energy(Some(12_345_678_901))),
            ("12.3 kJ".into(), "12.3 MJ".into())
        );
        assert_eq!(
            (elapsed(None), elapsed(Some(7_900)), elapsed(Some(183_845_000))),
            ("-".into(), "00:00:07".into(), "2-03:04:05".into())
        );
    }
}
