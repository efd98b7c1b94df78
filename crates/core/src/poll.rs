//! When something is polled: schedules with a fixed interval, and retries after failures.

mod interval;
mod last_poll;
mod schedule;

pub use interval::interval;
pub use last_poll::{LastPoll, poll_delay};
pub use schedule::Poll;
