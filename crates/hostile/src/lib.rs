//! Hostile inputs, and the time and memory within which Chandler refuses each of them.
//!
//! Each input is given to the code that the manager runs, in a process of its own: an input that is not refused as it should
//! cannot disturb the measurement of another.

mod inputs;
mod lab;
mod measurement;
mod report;

pub use self::{
    inputs::INPUTS,
    lab::Lab,
    measurement::Measurement,
    report::{Outcome, markdown},
};

/// What an input needs, besides this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing, and it is refused within a few seconds, also without optimization.
    Nothing,
    /// Some seconds, or some hundred megabytes.
    Time,
    /// The Helm driver.
    Driver,
}

/// A hostile input.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// The kind of input, such as `archive`.
    pub kind: &'static str,
    /// A name that is unique within its kind.
    pub name: &'static str,
    /// What is hostile about it.
    pub what: &'static str,
    pub needs: Needs,
    /// Part of the reason why it is refused. Another reason means that the input is not what it should be.
    pub because: &'static str,
    /// Gives the input to the code that the manager runs.
    pub run: fn(&Lab) -> Attempt,
}

/// The result of an input: the reason why it was refused, and `None` if it was accepted. An error means that it could not be
/// tried.
pub type Attempt = anyhow::Result<Option<String>>;

/// Returns the attempt of a result whose error is a refusal.
pub(crate) fn refusal<T, E: std::fmt::Display>(result: Result<T, E>) -> Attempt {
    result.map_or_else(|error| Ok(Some(error.to_string())), |_| Ok(None))
}

impl Input {
    /// Returns kind and name.
    pub fn id(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}
