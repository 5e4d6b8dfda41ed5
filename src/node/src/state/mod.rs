//! What gpuward keeps on a node: files that last until the next boot, and files that survive it.

mod app_xids;
mod attempts;
mod boot;
mod history;
mod jobs;
mod known;
mod records;

pub use app_xids::{load_app_xids, note_app_xids};
pub use attempts::{Attempt, take_unfinished};
pub use boot::BootState;
pub use history::{Entry, finding_id, write_entry};
pub use jobs::{JobFiles, new_nonce};
pub use known::{load_known, save_known};
pub use records::{has_record, list_records, write_record};
