//! What tenants, repositories and workload clusters must not be able to do to others.

mod archives;
mod catalog_filters;
mod complex_dependencies;
mod dead_repositories;
mod floods;
mod hook_requests;
mod hostile_clusters;
mod logins;
mod manager_account;
mod refused_addresses;
mod shared_sources;
mod tenancy;
mod tenancy_changes;
mod tenancy_records;
mod tenancy_sources;
pub mod tenants;
mod tool_processes;
mod values_secrets;
