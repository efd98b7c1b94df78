//! Chandler's runtime extension for Cluster API: it serves the lifecycle hooks that Cluster API calls before and after it
//! upgrades or deletes a Cluster, and whose response can block the operation.
//!
//! [`start`] serves the hooks over TLS with a self-managed certificate, and maintains the ExtensionConfig that registers them
//! with Cluster API. A [`HookHandler`] decides on the responses.

mod admission;
mod certificates;
mod connections;
mod discovery;
mod endpoint;
mod error;
mod handler;
mod hook;
mod reachability;
mod registrar;
mod registration;
mod request;
mod server;
mod start;
mod wire;

pub use certificates::CERTIFICATE_LIFETIME;
pub use discovery::{Discovery, discovery};
pub use endpoint::Endpoint;
pub use error::{Disabled, Error};
pub use handler::{Caller, HookCall, HookHandler, HookResponse};
pub use hook::{FailurePolicy, Hook};
pub use reachability::UNREACHABLE_LIMIT;
pub use registration::{EXTENSION_CONFIG, Owner, Registration, unregister};
pub use request::HookRequest;
pub use start::{HookServer, Options, start};
