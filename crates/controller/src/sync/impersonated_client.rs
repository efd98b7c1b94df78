//! Reads, writes and deletes objects with the permissions of a ServiceAccount only.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::SYNC_FIELD_MANAGER;
use chandler_core::failure::{Category, Failure, root_cause};
use chandler_source::NamespaceSemaphore;
use kube::{
    Client, Resource as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GetParams, Patch, PatchParams, PostParams, Preconditions,
        ValidationDirective,
    },
    core::{Request, Status, request},
};
use serde_json::{Value, json};

use crate::{error::management_category, parameters::impersonation};

/// Deadline of one request, including its wait for other requests.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);

/// A failed request.
#[derive(Debug)]
pub struct RequestError {
    /// The object, its namespace or its kind does not exist.
    pub missing: bool,
    /// The object has changed since it was read.
    pub outdated: bool,
    pub failure: Failure,
}

impl RequestError {
    fn new(category: Category, message: impl Into<String>) -> Self {
        Self { missing: false, outdated: false, failure: Failure::new(category, message) }
    }
}

/// Where an object is.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    pub resource: &'a ApiResource,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

impl Location<'_> {
    fn request(&self) -> Request {
        Request::new(DynamicObject::url_path(self.resource, self.namespace))
    }
}

/// How an object is applied.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// Take over fields of other field managers.
    pub force: bool,
    /// Validate only.
    pub dry_run: bool,
}

/// A client that impersonates a ServiceAccount in every request.
pub struct ImpersonatedClient {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Limits the concurrent requests of all Syncs. Namespaces share it.
    pub limit: Arc<NamespaceSemaphore>,
}

impl ImpersonatedClient {
    /// Reads an object. Returns `None` if it does not exist.
    pub async fn get(&self, at: Location<'_>) -> Result<Option<Value>, Failure> {
        match self.send(at, at.request().get(at.name, &GetParams::default())).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.missing => Ok(None),
            Err(error) => Err(error.failure),
        }
    }

    /// Applies an object and returns it as it is stored.
    pub async fn apply(
        &self,
        at: Location<'_>,
        object: &Value,
        options: ApplyOptions,
    ) -> Result<Value, RequestError> {
        let parameters = PatchParams {
            dry_run: options.dry_run,
            force: options.force,
            field_manager: Some(SYNC_FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
        };
        self.send(at, at.request().patch(at.name, &parameters, &Patch::Apply(object))).await
    }

    /// Returns whether the account may write an object. One that Chandler may not impersonate may not.
    pub async fn may_write(&self, at: Location<'_>) -> Result<bool, Failure> {
        let ApiResource { group, plural, .. } = at.resource;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": "patch", "group": group, "resource": plural, "name": at.name, "namespace": at.namespace,
            }},
        });
        let request = Request::new("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let request = request.create(&PostParams::default(), review.to_string().into_bytes());
        match self.send(at, request).await {
            Ok(review) => Ok(review["status"]["allowed"] == true),
            Err(error) if error.failure.category == Category::Forbidden => Ok(false),
            Err(error) => Err(error.failure),
        }
    }

    /// Deletes exactly this version of an object.
    pub async fn delete(
        &self,
        at: Location<'_>,
        uid: String,
        resource_version: String,
    ) -> Result<(), RequestError> {
        let preconditions = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match self.send(at, at.request().delete(at.name, &parameters)).await {
            Ok(_) => Ok(()),
            Err(error) if error.missing => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        at: Location<'_>,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<Value, RequestError> {
        let mut request =
            request.map_err(|error| RequestError::new(Category::InvalidPackage, error.to_string()))?;
        // The API server adds the groups of the ServiceAccount. Impersonating them explicitly would require the
        // permission to impersonate groups, which cannot be restricted to those groups.
        let user = format!("system:serviceaccount:{}:{}", self.namespace, self.name);
        let valid = user.split(':').count() == 4;
        let user = user.parse::<http::HeaderValue>().ok().filter(|_| valid).ok_or_else(|| {
            RequestError::new(Category::InvalidSpec, "spec.serviceAccountName is not a valid name")
        })?;
        request.headers_mut().insert("impersonate-user", user);
        let answer = async {
            let _slot = self.limit.wait(&self.namespace).await;
            // As text: a client that cannot decode an object writes it to the log.
            self.client.request_text(request).await
        };
        let answer = tokio::time::timeout(REQUEST_LIMIT, answer).await.map_err(|_| {
            let message = format!("the API server has not answered within {REQUEST_LIMIT:?}");
            RequestError::new(Category::Timeout, message)
        })?;
        let text = answer.map_err(|error| self.problem(at.resource, &error))?;
        serde_json::from_str(&text)
            .map_err(|_| RequestError::new(Category::Internal, "the answer of the API server is not JSON"))
    }

    fn problem(&self, resource: &ApiResource, error: &kube::Error) -> RequestError {
        let category = management_category(error);
        let kube::Error::Api(status) = error else { return RequestError::new(category, root_cause(error)) };
        let refused = status.details.as_ref().map_or("", |details| details.kind.as_str());
        if status.code == 403 && refused == "serviceaccounts" && resource.plural != refused {
            return RequestError::new(category, impersonation(&self.namespace, &self.name));
        }
        RequestError {
            missing: status.code == 404,
            outdated: status.code == 409 && !has_field_conflicts(status),
            failure: Failure::new(category, explain(status)),
        }
    }
}

fn has_field_conflicts(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "FieldManagerConflict")
}

/// Returns the message of the API server without values: that of an invalid object repeats them, its fields are enough.
fn explain(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    if has_field_conflicts(status) {
        let fields: Vec<_> = causes.map(|cause| format!("{} ({})", cause.field, cause.message)).collect();
        let fields = fields.join(", ");
        return format!("other field managers have set {fields}; set spec.force to take over these fields");
    }
    match status.code {
        400 if status.message.contains("strict decoding error") => status.message.clone(),
        400 | 422 => {
            let fields: Vec<_> = causes.map(|cause| format!("{} ({})", cause.field, cause.reason)).collect();
            format!("the API server rejects it: {} {}", status.reason, fields.join(", "))
        }
        _ => status.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn status(code: u16, reason: &str, message: &str, cause: Option<(&str, &str, &str)>) -> Status {
        let cause = cause.map(|(reason, message, field)| StatusCause {
            reason: reason.to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: cause.into_iter().collect(),
            retry_after_seconds: 0,
        };
        Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            details: Some(details),
            ..Status::default()
        }
    }

    #[test]
    fn messages_name_fields_and_managers_but_no_values() {
        let conflict = ("FieldManagerConflict", "conflict with \"kubectl\"", ".data.key");
        let invalid = ("FieldValueInvalid", "Invalid value: \"canary\"", "spec.paused");
        let rows = [
            (
                status(409, "Conflict", "Apply failed", Some(conflict)),
                ".data.key (conflict with \"kubectl\")",
            ),
            (
                status(422, "Invalid", "Invalid value: \"canary\"", Some(invalid)),
                "spec.paused (FieldValueInvalid)",
            ),
            (status(400, "BadRequest", "cannot parse canary", None), "BadRequest"),
            (
                status(400, "BadRequest", "strict decoding error: unknown field \"a\"", None),
                "unknown field \"a\"",
            ),
            (status(403, "Forbidden", "User cannot patch", None), "User cannot patch"),
        ];
        for (status, expected) in rows {
            let message = explain(&status);
            assert!(message.contains(expected) && !message.contains("canary"), "{message}");
        }
        assert!(has_field_conflicts(&status(409, "Conflict", "", Some(conflict))));
        assert!(!has_field_conflicts(&status(409, "Conflict", "the object has been modified", None)));
    }
}
