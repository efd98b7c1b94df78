//! What a tenant, a workload cluster or a repository tries in order to harm Chandler or another tenant.

mod hostile_clusters;
mod refused_addresses;
