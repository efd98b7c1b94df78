//! What tenants and holders of credentials must not be able to do.

mod floods;
mod manager_account;
