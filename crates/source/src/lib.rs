//! Packages: where they come from, and the store they are kept in by content.

mod access;
mod addresses;
mod archive;
mod catalog;
mod changes;
mod error;
mod https;
mod index;
mod limits;
mod oci;
mod packages;
mod section;
mod shared;
mod signature;
mod store;
mod values;
mod verified;
mod web;

pub use access::{Access, BadSecret, Credentials};
pub use addresses::{AddressPolicy, AddressRange, BadAddressRange, RefusedAddress};
pub use catalog::{Catalog, CatalogRequest, Chart, ChartSummary};
pub use error::SourceError;
pub use hyper_util::client::proxy::matcher::Matcher as ProxyMatcher;
pub use limits::Limits;
pub use packages::{Packages, PublishedVersion, Resolved, SourceOptions};
pub use signature::{
    BadKey, BadPolicy, BadRule, BadSigners, BadSource, BadTrustedRoot, Refusal, SignaturePolicy, Signers,
    SignersSpec, WantedIdentity,
};
pub use store::{Retention, Store, StoredPackage};
pub use values::PackageValues;
