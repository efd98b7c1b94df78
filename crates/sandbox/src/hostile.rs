//! What tenants attack Chandler with: servers, charts and archives. Tests and benchmarks share it.

pub mod api_server;
pub mod archive;
pub mod chart;
pub mod repository;
