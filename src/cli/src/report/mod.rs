//! Text for people: tables whose columns line up, with `-` for what is not known.

mod findings;
mod table;
mod terminal;

pub use findings::{Coverage, Report};
pub use table::Table;
pub use terminal::{Progress, Style};

/// `text` in lines of at most `width` bytes, broken between words where that can be done; at least one line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    if text.len() <= width {
        return vec![text.to_owned()];
    }
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        let line = lines.last().map_or(0, String::len);
        if line > 0 && line + 1 + word.len() > width {
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
        }
        // A word that is longer than a line is cut.
        while word.len() > width && word.is_char_boundary(width) {
            let (head, tail) = word.split_at(width);
            lines.last_mut().into_iter().for_each(|last| last.push_str(head));
            lines.push(String::new());
            word = tail;
        }
        lines.last_mut().into_iter().for_each(|last| last.push_str(word));
    }
    lines
}

/// The moment for people, in UTC: `2026-12-01 09:19`.
pub fn moment(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let mut days = minutes / 1440;
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02}", days + 1, minutes / 60 % 24, minutes % 60)
}

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
    fn lines_are_broken_between_words_and_long_words_are_cut() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(
            (wrap("", 4), wrap("abc", 0)),
            (vec![String::new()], vec!["a".into(), "b".into(), "c".into()])
        );
        for width in 1..40 {
            let lines = wrap("the driver does not answer 0123456789abcdef in time", width);
            assert!(lines.iter().all(|line| line.len() <= width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00");
        assert_eq!(moment(951_782_399_000), "2000-02-28 23:59");
        assert_eq!(moment(951_868_800_000), "2000-03-01 00:00", "after 29 February");
        assert_eq!(moment(1_798_761_599_000), "2026-12-31 23:59");
    }

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
