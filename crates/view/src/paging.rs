//! Lists objects page by page.

use std::fmt::Debug;

use futures::{Stream, stream};
use kube::{Api, api::ListParams};
use serde::de::DeserializeOwned;

const PAGE_SIZE: u32 = 500;

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
