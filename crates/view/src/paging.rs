//! Lists objects page by page.

use std::{fmt::Debug, pin::pin};

use futures::{Stream, TryStreamExt as _, stream};
use kube::{Api, api::ListParams};
use serde::de::DeserializeOwned;

use crate::Progress;

const PAGE_SIZE: u32 = 500;
/// What to check if a kind of Chandler cannot be listed.
pub const CRD_HINT: &str = "are Chandler's CRDs installed (`chandler crds`), and may you list their objects?";
/// What to check if Clusters cannot be listed.
pub const CLUSTER_API_HINT: &str = "is Cluster API installed, and may you list Clusters?";

/// Returns the pages of a list. The next page is requested only when the stream is polled again.
pub fn pages<K>(api: Api<K>, params: ListParams) -> impl Stream<Item = kube::Result<Vec<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    stream::try_unfold(Some(params.limit(PAGE_SIZE)), move |params| {
        let api = api.clone();
        async move {
            let Some(params) = params else { return Ok(None) };
            let list = api.list(&params).await?;
            let token = list.metadata.continue_.filter(|token| !token.is_empty());
            Ok(Some((list.items, token.map(|token| params.continue_token(&token)))))
        }
    })
}

/// Lists all objects. `objects` names them in the progress.
pub async fn list_all<K>(
    api: Api<K>,
    params: ListParams,
    objects: &str,
    progress: &dyn Progress,
) -> kube::Result<Vec<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut all = Vec::new();
    let mut pages = pin!(pages(api, params));
    loop {
        progress.report(format!("reading: {} {objects}", all.len()));
        match pages.try_next().await? {
            Some(page) => all.extend(page),
            None => return Ok(all),
        }
    }
}
