//! Decisions about the files of a Source.

pub mod content;
