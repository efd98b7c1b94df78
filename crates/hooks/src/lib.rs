//! Chandler's runtime hooks: Cluster API asks before and after what it does to a Cluster, and waits for the answer.
//!
//! [`start`] serves them over TLS, with certificates of its own, and keeps the ExtensionConfig that tells Cluster API
//! where. What is answered is for an implementation of [`Answers`] to say.

mod answer;
mod certificates;
mod endpoint;
mod error;
mod hook;
mod keeper;
mod registration;
mod request;
mod server;
mod wire;

pub use answer::{Answer, Answers};
pub use certificates::LIFETIME;
pub use endpoint::Endpoint;
pub use error::Error;
pub use hook::{FailurePolicy, Hook};
pub use keeper::{Options, Serving, start};
pub use registration::{EXTENSION_CONFIG, Owner, Registration, unregister};
