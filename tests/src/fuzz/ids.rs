//! Identifiers, and text that is shown.

use super::{shown, text};
use gpuward_core::model::job::parse_file_name;
use gpuward_core::model::{GpuUuid, PciAddress};
use gpuward_core::text::{escape, escape_bytes};

pub const WORDS: &[&str] =
    &["0000:3b:00.0", "00010000:01:1f.7", "GPU-", "MIG-GPU-", "/1/0", "7.0123456789abcdef.json"];

/// Each line for itself: what is an identifier reads back from what it prints, what is not is told on one line.
pub fn check(data: &[u8]) {
    escapes(data);
    text(data).lines().for_each(identifier);
}

fn escapes(data: &[u8]) {
    for max_bytes in [0, 1, 2, 3, 4, 7, 80, 300] {
        let line = escape_bytes(data, max_bytes);
        shown("the escape", &line, max_bytes);
        // Cutting is the only loss: with room enough no two texts look the same.
        if data.len() * "\\x00".len() <= max_bytes {
            assert_eq!(unescape(&line), data, "{line}");
        }
    }
    shown("the escape", &escape(&text(data), 255), 255);
}

fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line;
    while let Some(letter) = rest.bytes().next() {
        let code = rest.strip_prefix("\\x").and_then(|hex| u8::from_str_radix(hex.get(..2)?, 16).ok());
        bytes.push(code.unwrap_or(letter));
        rest = &rest[if code.is_some() { 4 } else { 1 }..];
    }
    bytes
}

fn identifier(line: &str) {
    match line.parse::<PciAddress>() {
        Ok(address) => {
            assert!(address.device <= 0x1f && address.function <= 7);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        Err(error) => shown("the error", &error.to_string(), 200),
    }
    match line.parse::<GpuUuid>() {
        Ok(uuid) => {
            shown("the UUID", uuid.as_str(), 96);
            assert_eq!(uuid.to_string().parse().as_ref(), Ok(&uuid));
            assert!(uuid.as_str().starts_with(uuid.short()) && uuid.short().len() <= 12);
        }
        Err(error) => shown("the error", &error.to_string(), 200),
    }
    if let Some((job, nonce)) = parse_file_name(line) {
        assert_eq!(parse_file_name(&format!("{job}.{nonce}.json")), Some((job, nonce)));
        shown("the nonce", nonce, 16);
    }
}
