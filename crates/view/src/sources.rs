//! The Sources of a management cluster, and what `chandler source` changes in them.

mod changes;
mod reader;
mod reference;
mod views;

use chandler_api::extensions::Source;
use kube::ResourceExt as _;

pub use self::{
    changes::{ChangeError, Pin, Unpin, pin, reconcile, resume, suspend, unpin},
    reader::{Error, SourceReader, read_source},
    reference::SourceReference,
    views::{SourceUser, SourceView},
};

/// Returns namespace and name of a Source, joined by `/`.
pub fn namespaced_name(source: &Source) -> String {
    format!("{}/{}", source.namespace().unwrap_or_default(), source.name_any())
}
