//! What tenants, repositories and workload clusters must not be able to do to others.

mod archives;
mod catalog_filters;
mod complex_dependencies;
mod dead_repositories;
mod floods;
mod logins;
mod manager_account;
mod shared_sources;
pub mod tenants;
mod values_secrets;
