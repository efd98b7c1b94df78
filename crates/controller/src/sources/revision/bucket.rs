//! The objects of a bucket that a Source asks for.

use std::time::Duration;

use chandler_api::extensions::Bucket;
use chandler_core::{
    failure::Failure,
    source::{SelectedRevision, content_key},
};
use chandler_source::{Access, BucketObjects, SourceTree, StoredRevision};

use super::{FetchResult, RevisionFetcher, known, stored_for};
use crate::queue::outside_of_limit;

impl RevisionFetcher<'_> {
    pub(super) async fn current_bucket(
        &self,
        bucket: &Bucket,
        max_age: Duration,
    ) -> Result<FetchResult, Failure> {
        let access = self.access().await?;
        let spec = &self.source.spec;
        let namespace = self.namespace();
        let listed = self.packages.bucket_objects(bucket, &access, &spec.ignore, max_age, &namespace);
        let listed = outside_of_limit(listed).await?;
        let selected = SelectedRevision { id: listed.record.id.clone(), tag: None };
        if let Some(stored) = self.stored().filter(|stored| stored_for(stored).is_current(&selected, None)) {
            return Ok(known(stored));
        }
        self.store(&selected, None, self.fetch_bucket(&listed, &access)).await
    }

    /// Fetches the objects of a bucket.
    async fn fetch_bucket(
        &self,
        listed: &BucketObjects,
        access: &Access,
    ) -> Result<(StoredRevision, SourceTree), Failure> {
        let namespace = self.namespace();
        let tree = outside_of_limit(self.packages.bucket_files(listed, access, &namespace)).await?;
        let stored = StoredRevision {
            namespace,
            content_key: content_key(&self.source.spec).as_str().to_owned(),
            verified_with: None,
            commit: listed.record.clone(),
            tag: None,
            verified_by: None,
            remarks: String::new(),
        };
        Ok((stored, SourceTree::clone(&tree)))
    }
}
