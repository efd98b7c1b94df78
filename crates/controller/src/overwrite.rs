//! Applies objects that Chandler owns, including fields that other field managers have set.

use std::fmt::Debug;

use chandler_api::FIELD_MANAGER;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

/// Applies an object by server-side apply and returns the result.
///
/// A field that another field manager has set (CAAPH or `clusterctl move`) is not removed by an apply without it. If
/// the result differs from `object` according to `same`, the spec is replaced.
pub async fn apply<K>(api: &Api<K>, object: &K, same: impl Fn(&K, &K) -> bool) -> Result<K, kube::Error>
where
    K: ResourceExt + Clone + Debug + DeserializeOwned + Serialize,
{
    let name = object.name_any();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let written = api.patch(&name, &parameters, &Patch::Apply(object)).await?;
    if same(&written, object) {
        return Ok(written);
    }
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let replaced = with_spec_of(&written, object).map_err(kube::Error::SerdeError)?;
    api.replace(&name, &parameters, &replaced).await
}

fn with_spec_of<K: DeserializeOwned + Serialize>(existing: &K, desired: &K) -> serde_json::Result<K> {
    let mut object = serde_json::to_value(existing)?;
    object["spec"] = serde_json::to_value(desired)?["spec"].take();
    serde_json::from_value(object)
}
