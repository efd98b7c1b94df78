//! Access to workload clusters from Rust: connections, and the inventory of their releases.

mod connection;
mod credentials;
mod deadline;
mod inventory;
mod kubeconfig;
mod probe;
mod proxy;
mod reach;

pub use connection::{Census, Connection, Connections, InventoryChange, InventoryView, RecordsOf};
pub use deadline::{ResponseDeadlines, WATCH_SILENCE};
pub use kubeconfig::{KubeconfigError, target_from_kubeconfig};
pub use reach::failure_of;
