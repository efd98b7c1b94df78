//! What tenants and holders of credentials must not be able to do.

mod catalog_filters;
mod complex_dependencies;
mod dead_repositories;
mod tenants;
mod values_secrets;
