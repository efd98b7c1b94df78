//! Catalogs: which packages of a repository belong to one, who may use it, what extensions its charts stand for, how they
//! are searched, when they are looked at again, and what is said about it.

mod audience;
mod implied;
mod pace;
mod report;
mod search;
mod selection;

pub use audience::{Namespace, may_use};
pub use implied::{ANNOTATIONS, CHANNEL, DEPENDENCIES, Entry, implied};
pub use pace::{LastLook, interval, next_look};
pub use report::{Look, report, unverifiable};
pub use search::{Rank, Words};
pub use selection::Selection;
