//! Access to workload clusters from Rust: connections, the inventory of their releases, and the health
//! of the objects of these.

mod answers;
#[cfg(test)]
mod api_server;
mod budget;
mod connection;
mod credentials;
mod deadline;
mod dial;
mod follow_once;
mod health;
mod inventory;
mod kubeconfig;
mod page_size;
mod pages;
mod parse_gate;
mod probe;
mod proxy;
mod reach;
mod request;
mod response;
mod status;
mod ticks;
mod turn;
mod watch_error;

pub use connection::{Census, Connection, Connections, InventoryChange, InventoryView, RecordsOf};
pub use deadline::{ResponseDeadlines, WATCH_SILENCE};
pub use follow_once::follow_once;
pub use health::HealthWatches;
pub use kubeconfig::{KubeconfigError, target_from_kubeconfig};
pub use reach::failure_of;
