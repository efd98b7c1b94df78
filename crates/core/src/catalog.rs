//! Catalogs: which packages of a repository belong to one, how they are searched, when they are looked at again, and
//! what is said about it.

mod pace;
mod report;
mod search;
mod selection;

pub use pace::{LastLook, interval, next_look};
pub use report::{Look, report};
pub use search::{Rank, Words};
pub use selection::Selection;
