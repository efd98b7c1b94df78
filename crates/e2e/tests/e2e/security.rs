//! What tenants, repositories and workload clusters must not be able to do to others.

mod archives;
mod logins;
