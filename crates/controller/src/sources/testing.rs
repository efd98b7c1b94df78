//! What tests of Sources share.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use chandler_api::extensions::Source;
use chandler_core::source::{SourceRevisionRecord, content_key};
use chandler_source::{Packages, SourceOptions, SourceTree, Store, StoredRevision};
use kube::{
    Client,
    client::Body,
    runtime::{reflector::store::Writer, watcher::Event},
};
use serde_json::json;
use tokio::sync::watch;

use super::Sources;

/// Returns packages with a store in a folder.
pub fn packages(folder: &Path) -> Arc<Packages> {
    Arc::new(Packages::new(Store::open(folder).unwrap(), SourceOptions::default()))
}

/// Returns a Source of the namespace `team`.
pub fn source(branch: &str) -> Source {
    serde_json::from_value(json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
        "metadata": {"name": "fleet", "namespace": "team", "uid": "uid"},
        "spec": {"git": {"url": "https://git.example/fleet.git", "ref": {"branch": branch}}},
    }))
    .unwrap()
}

/// Returns Sources whose first list is complete and has one object.
pub fn listed(source: Source, packages: Arc<Packages>) -> Sources {
    let mut objects = Writer::new(());
    for event in [Event::Init, Event::InitApply(source), Event::InitDone] {
        objects.apply_watcher_event(&event);
    }
    Sources::new(offline(), vec![objects.as_reader()], packages, "platform", watch::Sender::default())
}

/// Returns the revision and the files of a commit, as they are stored for a Source.
pub fn stored(source: &Source, id: &str, files: &[(&str, &'static str)]) -> (StoredRevision, SourceTree) {
    let revision = StoredRevision {
        namespace: "team".to_owned(),
        content_key: content_key(&source.spec).as_str().to_owned(),
        verified_with: None,
        commit: SourceRevisionRecord { id: id.to_owned(), ..SourceRevisionRecord::default() },
        tag: None,
        verified_by: None,
        remarks: String::new(),
    };
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from_static(text.as_bytes())));
    (revision, SourceTree { revision: id.to_owned(), files: files.collect() })
}

/// Returns a client whose requests fail.
pub fn offline() -> Client {
    let refuse = |_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("no request is expected"))
    };
    Client::new(tower::service_fn(refuse), "default")
}
