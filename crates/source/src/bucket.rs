//! Buckets of object stores: lists objects, and fetches those of one list.
//!
//! The crate `object_store` knows the protocols. All its requests go through [`crate::http`], which restricts addresses,
//! size and time. Only keys of the Secret are used, never those of the machine or its cloud.

mod connector;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use chandler_core::{
    digest::Digest,
    source::{Bucket, Ignore, SourceRevisionRecord, revision_record},
};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{GetOptions, ObjectMeta, ObjectStore as _, path::Path};
use serde_json::json;

use self::{connector::MaxBytes, store::OpenBucket};
use crate::{
    Access, SourceError, SourceTree,
    access_digest::AccessDigest,
    http::HttpClient,
    limits::{TreeBudget, TreeLimits},
    namespace_semaphore::{NamespacePermit, NamespaceSemaphore},
    shared_fetches::SharedFetches,
    single_flight::SingleFlightCache,
};

/// How long a list can be used by callers that accept one of that age.
const TTL: Duration = Duration::from_hours(1);
/// Number of objects of a bucket that are fetched at the same time.
const CONCURRENT_OBJECTS: usize = 8;
/// Number of buckets that are listed at the same time. It limits memory. Namespaces share it fairly.
const CONCURRENT_LISTS: usize = 8;

/// An object of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    /// Path relative to the prefix.
    path: String,
    location: Path,
    size: u64,
    /// Changes with the content. `None` if the store has no tag for the object.
    tag: Option<String>,
    /// Seconds since the Unix epoch.
    modified: i64,
}

/// The objects of a bucket that a Source asks for.
#[derive(Clone, Debug)]
pub struct BucketObjects {
    /// The digest of the list, the number of objects, and the time of the newest one.
    pub record: SourceRevisionRecord,
    bucket: Bucket,
    objects: Vec<Listed>,
}

/// Memory for lists of objects.
const LISTS_CACHE_BYTES: usize = 32 << 20;

/// Returns the approximate size of a key in memory.
fn key_size((bucket, _): &(Bucket, AccessDigest)) -> usize {
    let Bucket { provider: _, endpoint, name, region, prefix } = bucket;
    let optional: usize = [region, prefix].into_iter().flatten().map(String::len).sum();
    endpoint.len() + name.len() + optional
}

/// Returns the approximate size of a list of objects in memory.
fn list_size(objects: &Arc<Vec<Listed>>) -> usize {
    objects.iter().map(object_size).sum()
}

fn object_size(object: &Listed) -> usize {
    // The location is the path below the prefix, so it is about as long.
    let texts = 2 * object.path.len() + object.tag.as_ref().map_or(0, String::len);
    size_of::<Listed>() + texts
}

/// All buckets. Callers with the same bucket and credentials share requests.
#[derive(Debug)]
pub(crate) struct Buckets {
    http: Arc<HttpClient>,
    lists: SingleFlightCache<(Bucket, AccessDigest), Arc<Vec<Listed>>>,
    /// By bucket, access and digest of the list.
    files: SharedFetches<(Bucket, AccessDigest, String), SourceTree>,
    permits: NamespaceSemaphore,
}

impl Buckets {
    pub fn new(http: Arc<HttpClient>) -> Self {
        Self {
            http,
            lists: SingleFlightCache::with_size_limit(TTL, LISTS_CACHE_BYTES, key_size, list_size),
            files: SharedFetches::new(),
            permits: NamespaceSemaphore::new(CONCURRENT_LISTS),
        }
    }

    /// For a namespace, lists the objects that `ignore` does not leave out, unless a list that is not older than `max_age` is known.
    pub async fn objects(
        &self,
        bucket: &Bucket,
        access: &Access,
        ignore: &[String],
        max_age: Duration,
        namespace: &str,
    ) -> Result<BucketObjects, SourceError> {
        let key = (bucket.clone(), AccessDigest::from(access));
        let list = |_, permit| self.list(bucket, access, permit);
        let all = self.lists.get_with_slot(&self.permits, namespace, max_age, key, list).await?;
        let objects = select(&all, &Ignore::new(ignore));
        let record = record(&objects);
        check(&objects, self.http.limits.tree).map_err(|reason| SourceError::UnusableRevision {
            url: url(bucket),
            revision: record.id.clone(),
            reason,
        })?;
        Ok(BucketObjects { record, bucket: bucket.clone(), objects })
    }

    async fn list(
        &self,
        bucket: &Bucket,
        access: &Access,
        permit: NamespacePermit,
    ) -> Result<Arc<Vec<Listed>>, SourceError> {
        let _permit = permit;
        let open = OpenBucket::new(self.http.clone(), bucket, access)?;
        let prefix = bucket.prefix.as_deref().map(Path::from).unwrap_or_default();
        let limit = self.http.limits.tree.entries;
        let list = async {
            let mut found = open.store.list(bucket.prefix.as_ref().map(|_| &prefix));
            let mut objects = Vec::new();
            let mut bytes = 0;
            while let Some(object) = found.next().await {
                let object = listed(&prefix, object.map_err(|error| open.error(&error))?);
                bytes += object.as_ref().map_or(0, object_size);
                objects.extend(object);
                if objects.len() > limit || bytes > LISTS_CACHE_BYTES {
                    let reason = format!(
                        "it has more than {limit} objects, or their names are too long; set spec.bucket.prefix"
                    );
                    return Err(SourceError::Bucket { url: url(bucket), reason });
                }
            }
            Ok(Arc::new(objects))
        };
        self.within_time(bucket, list).await
    }

    /// Fetches the objects. Concurrent callers share the fetch.
    pub async fn files(
        &self,
        objects: &BucketObjects,
        access: &Access,
        namespace: &str,
    ) -> Result<Arc<SourceTree>, SourceError> {
        let key = (objects.bucket.clone(), AccessDigest::from(access), objects.record.id.clone());
        let fetch = |permit| async move {
            let _permit = permit;
            self.fetch(objects, access).await
        };
        self.files.get(namespace, key, fetch).await
    }

    async fn fetch(&self, objects: &BucketObjects, access: &Access) -> Result<SourceTree, SourceError> {
        let open = OpenBucket::new(self.http.clone(), &objects.bucket, access)?;
        let reads: Vec<_> = objects.objects.iter().map(|object| read(&open, object)).collect();
        let files = futures::stream::iter(reads).buffer_unordered(CONCURRENT_OBJECTS).try_collect();
        let files: BTreeMap<String, Bytes> = self.within_time(&objects.bucket, files).await?;
        Ok(SourceTree { revision: objects.record.id.clone(), files })
    }

    async fn within_time<T>(
        &self,
        bucket: &Bucket,
        work: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        let limit = self.http.limits.git.timeout;
        let ended = tokio::time::timeout(limit, work).await;
        ended.map_err(|_| SourceError::Timeout { url: url(bucket), limit })?
    }
}

/// Reads an object, if it is still the listed one. Returns its path and content.
async fn read(open: &OpenBucket, object: &Listed) -> Result<(String, Bytes), SourceError> {
    let mut options = GetOptions { if_match: object.tag.clone(), ..GetOptions::default() };
    options.extensions.insert(MaxBytes(object.size));
    let got = open.store.get_opts(&object.location, options).await.map_err(|error| open.error(&error))?;
    let content = got.bytes().await.map_err(|error| open.error(&error))?;
    if content.len() as u64 == object.size {
        Ok((object.path.clone(), content))
    } else {
        Err(SourceError::Bucket {
            url: open.url.clone(),
            reason: format!("the object {} changed while it was read; this is retried", object.path),
        })
    }
}

fn url(bucket: &Bucket) -> String {
    format!("{}/{}", bucket.endpoint.trim_end_matches('/'), bucket.name)
}

/// Returns an object with its path relative to the prefix. `None` for the prefix itself.
fn listed(prefix: &Path, object: ObjectMeta) -> Option<Listed> {
    let ObjectMeta { location, last_modified, size, e_tag, .. } = object;
    let parts: Vec<_> =
        location.prefix_match(prefix)?.map(|part| AsRef::<str>::as_ref(&part).to_owned()).collect();
    let path = parts.join("/");
    let modified = last_modified.timestamp();
    (!path.is_empty()).then_some(Listed { path, location, size, tag: content_tag(e_tag), modified })
}

/// Returns the tag unless it is empty. Gateways to file systems have no tags for files that they did not write.
fn content_tag(tag: Option<String>) -> Option<String> {
    tag.filter(|tag| !tag.trim_matches('"').is_empty())
}

/// Returns the objects that are files and are not left out, by path.
fn select(all: &[Listed], ignore: &Ignore) -> Vec<Listed> {
    let is_ignored = |path: &str| {
        let mut ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        ends.any(|end| ignore.matches(&path[..end]))
    };
    let mut objects: Vec<_> = all.iter().filter(|object| !is_ignored(&object.path)).cloned().collect();
    objects.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    // Some programs create an empty object for each folder.
    let folders: BTreeSet<String> = objects.iter().flat_map(|object| folders(&object.path)).collect();
    objects.retain(|object| object.size > 0 || !folders.contains(&object.path));
    objects
}

/// Returns the folders above a path.
fn folders(path: &str) -> impl Iterator<Item = String> {
    path.match_indices('/').map(move |(end, _)| path[..end].to_owned())
}

fn record(objects: &[Listed]) -> SourceRevisionRecord {
    let list: Vec<_> = objects
        .iter()
        .map(|object| {
            json!([object.path, object.size, object.tag, object.tag.is_none().then_some(object.modified)])
        })
        .collect();
    let newest = objects.iter().map(|object| object.modified).max().unwrap_or_default();
    revision_record(
        Digest::of(json!(list).to_string()).as_str(),
        "",
        &format!("{} objects", objects.len()),
        newest,
    )
}

/// Checks the limits of the files before any is fetched.
fn check(objects: &[Listed], limits: TreeLimits) -> Result<(), String> {
    if objects.is_empty() {
        return Err(
            "it has no objects; check spec.bucket.prefix and spec.ignore, and that the credentials allow to list them"
                .to_owned(),
        );
    }
    let mut budget = TreeBudget::new(limits);
    let counted = objects.iter().try_for_each(|object| budget.add_file(&object.path, object.size));
    counted.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str, size: u64, tag: &str) -> Listed {
        let (location, tag) = (Path::from(path), Some(tag.to_owned()));
        Listed { path: path.to_owned(), location, size, tag, modified: 1_700_000_000 }
    }

    fn paths(objects: &[Listed]) -> Vec<&str> {
        objects.iter().map(|object| object.path.as_str()).collect()
    }

    #[test]
    fn files_are_selected_in_order_without_folders() {
        let all = [
            object("docs/x/a.md", 1, "1"),
            object("b.yaml", 1, "1"),
            object("apps", 0, "1"),
            object("apps/web/a.yaml", 1, "1"),
            object("empty", 0, "1"),
        ];
        let selected = select(&all, &Ignore::new(&["docs".to_owned()]));
        assert_eq!(paths(&selected), ["apps/web/a.yaml", "b.yaml", "empty"]);
    }

    #[test]
    fn the_revision_changes_with_the_list() {
        let one = record(&[object("a", 1, "1")]);
        assert!(one.id.starts_with("sha256:") && one.subject == "1 objects" && one.time.is_some());
        for other in [object("b", 1, "1"), object("a", 2, "1"), object("a", 1, "2")] {
            assert_ne!(record(std::slice::from_ref(&other)).id, one.id, "{other:?}");
        }
    }

    #[test]
    fn without_a_tag_the_time_of_the_last_change_is_part_of_the_revision() {
        for (tag, expected) in [("", None), ("\"\"", None), ("\"1\"", Some("\"1\""))] {
            assert_eq!(content_tag(Some(tag.to_owned())).as_deref(), expected);
        }
        let untagged = |modified| record(&[Listed { tag: None, modified, ..object("a", 1, "1") }]).id;
        assert_ne!(untagged(1), untagged(2));
        let tagged = |modified| record(&[Listed { modified, ..object("a", 1, "1") }]).id;
        assert_eq!(tagged(1), tagged(2));
    }

    #[test]
    fn limits_hold() {
        let limits = TreeLimits { bytes: 10, entries: 2, depth: 1 };
        let rows = [
            (vec![], "it has no objects"),
            (vec![object("a", 6, "1"), object("b", 6, "1")], "have more than 10 bytes"),
            (vec![object("a/b/c", 1, "1")], "is nested more than 1 folders deep"),
            (
                vec![object("a", 1, "1"), object("b", 1, "1"), object("c", 1, "1")],
                "more than 2 files and folders",
            ),
        ];
        for (objects, expected) in rows {
            let refused = check(&objects, limits).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
        assert_eq!(check(&[object("a/b", 10, "1")], limits), Ok(()));
    }
}
