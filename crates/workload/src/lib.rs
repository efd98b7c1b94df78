//! Access to workload clusters from Rust: connections, the inventory of their releases, and the health
//! of the objects of these.

mod connection;
mod credentials;
mod deadline;
mod dial;
mod health;
mod inventory;
mod kubeconfig;
mod probe;
mod proxy;
mod reach;
mod response;
mod turn;

pub use connection::{Census, Connection, Connections, InventoryChange, InventoryView, RecordsOf};
pub use deadline::{ResponseDeadlines, WATCH_SILENCE};
pub use health::HealthWatches;
pub use kubeconfig::{KubeconfigError, target_from_kubeconfig};
pub use reach::failure_of;
