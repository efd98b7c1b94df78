//! Everything that touches a workload cluster from Rust: how to reach it, and what is released on it.

mod connection;
mod inventory;
mod kubeconfig;
mod reach;

pub use connection::{Census, Connection, Connections, InventoryChange, InventoryView};
pub use kubeconfig::{KubeconfigError, target_from_kubeconfig};
pub use reach::failure_of;
