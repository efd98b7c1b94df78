//! Turns the files of a folder into objects.

use std::collections::BTreeMap;

use bytes::Bytes;
use chandler_core::{
    failure::{Category, Failure},
    sync::{Document, parse},
};
use futures::future::BoxFuture;

/// Turns the files of a folder into objects. It gets no credentials and makes no requests.
pub trait Render: Send + Sync {
    /// Returns the objects, or a failure that names file and line. A part of the objects is never returned.
    fn render(&self, files: BTreeMap<String, Bytes>) -> BoxFuture<'_, Result<Vec<Document>, Failure>>;
}

/// Reads folders of YAML and JSON files.
#[derive(Debug)]
pub struct PlainFiles;

impl Render for PlainFiles {
    fn render(&self, files: BTreeMap<String, Bytes>) -> BoxFuture<'_, Result<Vec<Document>, Failure>> {
        Box::pin(async move {
            // Large files would block other tasks.
            let parsed = tokio::task::spawn_blocking(move || parse(&files)).await;
            parsed.unwrap_or_else(|error| Err(Failure::new(Category::Internal, error.to_string())))
        })
    }
}
