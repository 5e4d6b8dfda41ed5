//! Times that can be compared: two things measured in turns, so that whatever else the host does hits both.

use std::fmt;

/// Times of one thing, milliseconds, in the order of the runs.
#[derive(Debug, Clone)]
pub struct Series {
    values: Vec<f64>,
}

impl Series {
    /// A series of at least one value.
    pub fn new(values: Vec<f64>) -> Series {
        assert!(!values.is_empty(), "nothing was measured");
        Series { values }
    }

    /// What `compare` makes of each run and the run of `other` beside it.
    pub fn of_pairs(&self, other: &Series, compare: impl Fn(f64, f64) -> f64) -> Series {
        Series::new(self.values.iter().zip(&other.values).map(|(a, b)| compare(*a, *b)).collect())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::MIN, f64::max)
    }

    fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::MAX, f64::min)
    }
}

impl fmt::Display for Series {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:8.2}  [{:.2} .. {:.2}]", self.median(), self.min(), self.max())
    }
}

/// Measures `first` and `second` in turns, `count` times each, after one run of both that does not count.
pub fn pairs(
    count: usize,
    mut first: impl FnMut() -> f64,
    mut second: impl FnMut() -> f64,
) -> (Series, Series) {
    first();
    second();
    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    for turn in 0..count {
        // Who goes first changes, too.
        if turn % 2 == 0 {
            of_first.push(first());
            of_second.push(second());
        } else {
            of_second.push(second());
            of_first.push(first());
        }
    }
    (Series::new(of_first), Series::new(of_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert!((Series::new(vec![9.0, 1.0, 5.0]).median() - 5.0).abs() < f64::EPSILON);
        assert!((Series::new(vec![4.0, 1.0, 2.0, 9.0]).median() - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn both_sides_are_measured_equally_often() {
        let (mut a, mut b) = (0.0, 0.0);
        let next = |counter: &mut f64| {
            *counter += 1.0;
            *counter
        };
        let (first, second) = pairs(5, || next(&mut a), || next(&mut b));
        assert_eq!((first.values.len(), second.values.len()), (5, 5));
    }
}
