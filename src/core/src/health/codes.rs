pub fn is_known(code: &str) -> bool {
    code.starts_with("XID") && code[3..].parse::<u32>().is_ok()
}
pub fn all_names() -> impl Iterator<Item = &'static str> {
    ["XID79"].into_iter()
}
