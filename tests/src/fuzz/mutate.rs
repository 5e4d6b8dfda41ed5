//! A small deterministic mutator, for where libFuzzer is not at hand.

use super::MAX_INPUT_BYTES;

/// Pseudo-random numbers, the same on every machine: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> Option<&'a T> {
        all.get(self.below(all.len())).copied()
    }
}

/// Numbers at which counters and lengths break.
const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "31",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999",
];

/// Letters that terminals, shells and parsers of lines take for more than a letter, and letters of several bytes.
const LETTERS: [&str; 12] =
    ["\n", "\r", "\t", "\0", "\x1b[31m", "\x7f", "\u{9b}", "\u{202e}", "é", "\\", "\"", "`"];

/// An input made from one of `seeds`: one to four changes.
pub fn mutate(random: &mut Random, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let seed = |random: &mut Random| seeds.get(random.below(seeds.len())).cloned().unwrap_or_default();
    let mut input = seed(random);
    for _ in 0..=random.below(4) {
        let other = seed(random);
        change(random, &mut input, &other, words);
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let at = random.below(input.len() + 1);
    let until = at + random.below((input.len() - at).min(64) + 1);
    match random.below(9) {
        0 => flip(random, input),
        1 => input.truncate(at),
        2 => drop(input.drain(at..until)),
        3 => {
            let piece = input[at..until].to_vec();
            let twice = random.below(8) + 1;
            insert(input, at, &piece.repeat(twice));
        }
        4 => {
            // A piece of another input in the place of a piece of this one.
            let from = random.below(other.len() + 1);
            let to = from + random.below((other.len() - from).min(256) + 1);
            drop(input.splice(at..until, other[from..to].iter().copied()));
        }
        5 => {
            input.truncate(at);
            input.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        6 => number(random, input),
        7 => insert(input, at, random.pick(&LETTERS).unwrap_or_default().as_bytes()),
        _ => insert(input, at, random.pick(words).unwrap_or_default().as_bytes()),
    }
}

fn flip(random: &mut Random, input: &mut [u8]) {
    let at = random.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte = if random.below(2) == 0 { *byte ^ (1 << random.below(8)) } else { random.byte() };
    }
}

/// Another number in the place of one that is there.
fn number(random: &mut Random, input: &mut Vec<u8>) {
    let start = random.below(input.len() + 1);
    let Some(at) = input[start..].iter().position(u8::is_ascii_digit).map(|at| start + at) else { return };
    let end = input[at..].iter().position(|byte| !byte.is_ascii_digit()).map_or(input.len(), |end| at + end);
    let number = random.pick(&NUMBERS).unwrap_or_default();
    drop(input.splice(at..end, number.bytes()));
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(input.splice(at..at, piece.iter().copied()));
}

/// Long inputs of one piece again and again, and of one piece among many digits or letters: what is quadratic in its
/// input, or grows without bound, does not come to an end on these.
pub fn long_inputs(words: &[&str]) -> Vec<Vec<u8>> {
    let fill = |piece: &str| piece.as_bytes().iter().copied().cycle().take(MAX_INPUT_BYTES).collect();
    let mut all: Vec<Vec<u8>> = words.iter().map(|word| fill(word)).collect();
    for word in words {
        for padding in ["0", "x", " "] {
            all.push([word.as_bytes(), padding.repeat(MAX_INPUT_BYTES - word.len()).as_bytes()].concat());
        }
    }
    all
}
