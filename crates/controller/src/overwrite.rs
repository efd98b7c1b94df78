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
///
/// An object with a uid is only updated, never created: see [`is_uid_mismatch`].
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

/// Returns whether a write was refused because the API server does not have the object with the expected uid: 409 if there is none
/// to apply or another one to delete, 422 if a patch would change the uid. Webhooks may answer 409 for other reasons.
pub fn is_uid_mismatch(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 && status.message.to_ascii_lowercase().contains("uid")
        || status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use kube::core::{
        Status,
        response::{StatusCause, StatusDetails},
    };

    use super::*;

    #[test]
    fn only_a_refused_uid_is_a_mismatch() {
        let failure = |code: u16, message: &str, field: &str| {
            let cause =
                StatusCause { reason: String::new(), message: String::new(), field: field.to_owned() };
            let details = StatusDetails {
                name: String::new(),
                group: String::new(),
                kind: String::new(),
                uid: String::new(),
                causes: vec![cause],
                retry_after_seconds: 0,
            };
            let status = Status { details: Some(details), ..Status::failure(message, "Why") };
            kube::Error::Api(status.with_code(code).boxed())
        };
        let (applied, deleted) = (
            "uid mismatch: the provided object specified uid 1, and no existing object was found",
            "Precondition failed: UID in precondition: 1, UID in object meta: 2",
        );
        assert!(is_uid_mismatch(&failure(409, applied, "")));
        assert!(is_uid_mismatch(&failure(409, deleted, "")));
        assert!(is_uid_mismatch(&failure(422, "is invalid", "metadata.uid")));
        assert!(!is_uid_mismatch(&failure(409, "the object has been modified", "")));
        assert!(!is_uid_mismatch(&failure(422, "is invalid", "spec.version")));
        assert!(!is_uid_mismatch(&failure(403, "", "")));
    }
}
