//! What tenants, repositories and workload clusters must not be able to do to others.

mod archives;
mod logins;
mod catalog_filters;
mod complex_dependencies;
mod dead_repositories;
mod tenants;
mod values_secrets;
mod shared_sources;
