//! Objects that Chandler owns are as it wants them, whoever wrote them before.

use std::fmt::Debug;

use chandler_api::FIELD_MANAGER;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

/// Applies an object. What another field manager wrote (the provider whose place Chandler takes, or `clusterctl move`)
/// outlives an apply that leaves it out: if the result is not the same as wanted, the spec is replaced. Returns the object
/// as it is then.
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

fn with_spec_of<K: DeserializeOwned + Serialize>(there: &K, wanted: &K) -> serde_json::Result<K> {
    let mut object = serde_json::to_value(there)?;
    object["spec"] = serde_json::to_value(wanted)?["spec"].take();
    serde_json::from_value(object)
}
