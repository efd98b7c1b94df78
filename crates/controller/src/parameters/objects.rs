//! Reads individual objects of the management cluster, as Chandler itself or as a ServiceAccount.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::ObjectField;
use chandler_core::failure::{Category, Failure, root_cause};
use kube::{
    Client, Resource as _,
    api::{ApiResource, DynamicObject, GetParams},
    core::{GroupVersion, GroupVersionKind, Request},
    discovery::{self, Scope},
};
use serde_json::Value;

use crate::{
    error::management_category,
    single_flight::{MOMENT, SingleFlight},
};

/// How long the discovery of a kind is cached.
const KIND_KNOWN: Duration = Duration::from_mins(1);

/// Why an object was not returned.
pub enum Problem {
    /// The object or its kind does not exist.
    Absent,
    Unreadable(Unreadable),
}

/// Why an object cannot be read.
pub enum Unreadable {
    /// A name that is not a valid path segment.
    BadName(String),
    /// Missing permissions, and how to grant them.
    Forbidden(String),
    Failed(Failure),
}

impl Unreadable {
    pub fn failure(&self, object: &str) -> Failure {
        match self {
            Self::BadName(name) => Failure::new(
                Category::InvalidSpec,
                format!("{object} cannot be read: {name:?} is not a valid Kubernetes name"),
            ),
            Self::Forbidden(next) => {
                Failure::new(Category::Forbidden, format!("{object} may not be read: {next}"))
            }
            Self::Failed(Failure { category, message }) => {
                Failure::new(*category, format!("{object} cannot be read: {message}"))
            }
        }
    }
}

/// A read request.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Reading {
    /// The user to impersonate. `None` means Chandler itself.
    user: Option<String>,
    collection: String,
    name: String,
}

/// Reads objects, with a short-lived cache.
pub struct Objects {
    client: Client,
    read: SingleFlight<Reading, Arc<Value>>,
    kinds: SingleFlight<GroupVersionKind, Arc<(ApiResource, Scope)>>,
}

impl Objects {
    pub fn new(client: Client) -> Self {
        Self { client, read: SingleFlight::new(MOMENT), kinds: SingleFlight::new(KIND_KNOWN) }
    }

    /// Reads a Secret or ConfigMap in the instance's namespace with Chandler's own permissions.
    pub async fn read(&self, namespace: &str, plural: &str, name: &str) -> Result<Arc<Value>, Problem> {
        let reading = Reading {
            user: None,
            collection: format!("/api/v1/namespaces/{}/{plural}", segment(namespace)?),
            name: segment(name)?.to_owned(),
        };
        let forbidden = |_: &str| format!("let Chandler get {plural} in namespace {namespace}");
        self.get(&reading, forbidden).await
    }

    /// Reads any object in `object_namespace` with the permissions of a ServiceAccount in `namespace` only.
    pub async fn read_as(
        &self,
        namespace: &str,
        account: &str,
        object_namespace: &str,
        field: &ObjectField,
    ) -> Result<Arc<Value>, Problem> {
        let kind = self.kind(field).await?;
        let (resource, scope) = &*kind;
        let object_namespace = segment(object_namespace)?;
        let within = (*scope == Scope::Namespaced).then_some(object_namespace);
        // The API server adds the groups of the ServiceAccount. Impersonating them explicitly would require the
        // permission to impersonate groups, which cannot be restricted to those groups.
        let user = format!("system:serviceaccount:{}:{}", segment(namespace)?, account_name(account)?);
        let reading = Reading {
            user: Some(user),
            collection: DynamicObject::url_path(resource, within),
            name: segment(&field.name)?.to_owned(),
        };
        let forbidden = |refused: &str| {
            if refused == "serviceaccounts" && resource.plural != refused {
                impersonation(namespace, account)
            } else {
                rule(namespace, account, resource, within, &field.name)
            }
        };
        self.get(&reading, forbidden).await
    }

    async fn kind(&self, field: &ObjectField) -> Result<Arc<(ApiResource, Scope)>, Problem> {
        let bad = || bad_name(&field.api_version);
        let version: GroupVersion = field.api_version.parse().map_err(|_| bad())?;
        for part in [&version.group, &version.version] {
            if !part.is_empty() {
                segment(part)?;
            }
        }
        let kind = version.with_kind(&field.kind);
        let fetch = async {
            match discovery::pinned_kind(&self.client, &kind).await {
                Ok((resource, capabilities)) => Ok(Arc::new((resource, capabilities.scope))),
                Err(kube::Error::Discovery(_)) => Err(Problem::Absent),
                Err(error) => Err(problem(&error, |_| "let Chandler discover kinds".to_owned())),
            }
        };
        self.kinds.get(&kind, fetch).await
    }

    async fn get(
        &self,
        reading: &Reading,
        forbidden: impl Fn(&str) -> String,
    ) -> Result<Arc<Value>, Problem> {
        let fetch = async {
            let mut request = Request::new(&reading.collection)
                .get(&reading.name, &GetParams::default())
                .map_err(|_| bad_name(&reading.name))?;
            if let Some(user) = &reading.user {
                let user = user.parse().map_err(|_| bad_name(user))?;
                request.headers_mut().insert("impersonate-user", user);
            }
            // As text: a client that cannot decode an object writes it to the log.
            let text = self.client.request_text(request).await.map_err(|error| problem(&error, forbidden))?;
            let object = serde_json::from_str(&text)
                .map_err(|_| failed(Category::Internal, "the answer is not JSON"))?;
            Ok(Arc::new(object))
        };
        self.read.get(reading, fetch).await
    }
}

/// Converts an error. `forbidden` gets the resource of a 403 and returns how to grant the permission.
fn problem(error: &kube::Error, forbidden: impl Fn(&str) -> String) -> Problem {
    let category = management_category(error);
    let kube::Error::Api(status) = error else { return failed(category, root_cause(error)) };
    match status.code {
        404 => Problem::Absent,
        403 => {
            let refused = status.details.as_ref().map_or("", |details| details.kind.as_str());
            Problem::Unreadable(Unreadable::Forbidden(forbidden(refused)))
        }
        _ => failed(category, status.message.clone()),
    }
}

fn failed(category: Category, message: impl Into<String>) -> Problem {
    Problem::Unreadable(Unreadable::Failed(Failure::new(category, message)))
}

/// Returns how to allow Chandler to act as a ServiceAccount.
pub fn impersonation(namespace: &str, account: &str) -> String {
    format!(
        "Chandler may not act as ServiceAccount {namespace}/{account}: in namespace {namespace}, bind ClusterRole \
         chandler-impersonator to Chandler's own ServiceAccount (`kubectl create rolebinding chandler-impersonator \
         --clusterrole chandler-impersonator --serviceaccount chandler-system:chandler-manager --namespace {namespace}`)"
    )
}

fn rule(namespace: &str, account: &str, resource: &ApiResource, within: Option<&str>, name: &str) -> String {
    let (role, location) = match within {
        Some(within) => ("Role", format!("in namespace {within}, ")),
        None => ("ClusterRole", String::new()),
    };
    format!(
        "{location}bind ServiceAccount {namespace}/{account} to a {role} with the rule {{apiGroups: [{:?}], resources: \
         [{}], resourceNames: [{name}], verbs: [get]}}",
        resource.group, resource.plural
    )
}

/// Returns a name if it is a valid path segment.
fn segment(name: &str) -> Result<&str, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let valid = !name.is_empty() && name != "." && name != ".." && name.chars().all(allowed);
    if valid { Ok(name) } else { Err(bad_name(name)) }
}

/// Returns the name of a ServiceAccount. With a colon in it, the impersonated user would not be a ServiceAccount.
fn account_name(name: &str) -> Result<&str, Problem> {
    if name.contains(':') { Err(bad_name(name)) } else { segment(name) }
}

fn bad_name(name: &str) -> Problem {
    Problem::Unreadable(Unreadable::BadName(name.chars().take(100).collect()))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn failed_reads_have_the_category_of_the_response() {
        for (code, expected) in
            [(401, Category::Unauthorized), (403, Category::Forbidden), (503, Category::Unreachable)]
        {
            let error = kube::Error::Api(Status::failure("why", "Why").with_code(code).boxed());
            let Problem::Unreadable(why) = problem(&error, |_| "grant it".to_owned()) else {
                panic!("{code} is not absence")
            };
            assert_eq!(why.failure("Secret fleet/a").category, expected, "{code}");
        }
    }
}
