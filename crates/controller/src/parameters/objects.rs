//! Reads individual objects of the management cluster, as Chandler itself or as a ServiceAccount.

use std::{sync::Arc, time::Duration};

use chandler_api::extensions::{ObjectField, ObjectList};
use chandler_core::failure::{Category, Failure, root_cause};
use futures::AsyncReadExt as _;
use kube::{
    Client, Resource as _,
    api::{ApiResource, DynamicObject, GetParams, ListParams},
    core::{GroupVersion, GroupVersionKind, Request},
    discovery::{self, Scope},
};
use serde_json::Value;

use super::watches::{OnChange, Placement, Watches};
use crate::{
    error::management_category,
    single_flight::{MOMENT, SingleFlight},
};

/// How long the discovery of a kind is cached.
const KIND_KNOWN: Duration = Duration::from_mins(1);
/// How many objects one list may have. Each cluster has its own template data with all of them.
const MAX_LISTED: u32 = 500;
/// The size of an answer that is read at most. A Secret or ConfigMap takes less than half of it.
const MAX_ANSWER: usize = 4 << 20;

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
pub struct Reading {
    /// The user to impersonate. `None` means Chandler itself.
    pub user: Option<String>,
    pub collection: String,
    pub what: What,
}

/// What is read of a collection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum What {
    Name(String),
    /// All objects that a label selector matches.
    Selector(String),
}

/// Reads objects, with a short-lived cache.
pub struct Objects {
    client: Client,
    read: Arc<SingleFlight<Reading, Arc<Value>>>,
    kinds: SingleFlight<GroupVersionKind, Arc<(ApiResource, Scope)>>,
    /// `None` means that nothing is watched.
    watches: Option<Watches>,
    /// Whether requests have the permissions of a user instead of those of the manager.
    pub of_user: bool,
}

impl Objects {
    /// With `on_change`, what is read is watched, too.
    pub fn new(client: Client, on_change: Option<OnChange>) -> Self {
        let read = Arc::new(SingleFlight::new(MOMENT));
        let watches = on_change.map(|on_change| Watches::new(client.clone(), on_change, read.clone()));
        Self { client, read, kinds: SingleFlight::new(KIND_KNOWN), watches, of_user: false }
    }

    /// Reads with the permissions of a user, who cannot let the manager read more.
    pub fn of_user(client: Client) -> Self {
        Self { of_user: true, ..Self::new(client, None) }
    }

    /// Reads a Secret or ConfigMap in the placement's namespace with Chandler's own permissions.
    pub async fn read(&self, placement: &Placement, plural: &str, name: &str) -> Result<Arc<Value>, Problem> {
        let namespace = &placement.namespace;
        let reading = Reading {
            user: None,
            collection: format!("/api/v1/namespaces/{}/{plural}", segment(namespace)?),
            what: What::Name(segment(name)?.to_owned()),
        };
        let forbidden = |_: &str| format!("let Chandler get {plural} in namespace {namespace}");
        self.get(placement, &reading, forbidden).await
    }

    /// Reads any object in `object_namespace` with the permissions of a ServiceAccount in the placement's namespace only.
    pub async fn read_as(
        &self,
        placement: &Placement,
        account: &str,
        object_namespace: &str,
        field: &ObjectField,
    ) -> Result<Arc<Value>, Problem> {
        let namespace = &placement.namespace;
        let kind = self.kind(&field.api_version, &field.kind).await?;
        let (resource, scope) = &*kind;
        let object_namespace = segment(object_namespace)?;
        let within = (*scope == Scope::Namespaced).then_some(object_namespace);
        let reading = Reading {
            user: Some(user(namespace, account)?),
            collection: DynamicObject::url_path(resource, within),
            what: What::Name(segment(&field.name)?.to_owned()),
        };
        let forbidden = |refused: &str| {
            if refused == "serviceaccounts" && resource.plural != refused {
                impersonation(namespace, account)
            } else {
                let names = format!(", resourceNames: [{}]", field.name);
                rule(namespace, account, resource, within, &names, "get")
            }
        };
        self.get(placement, &reading, forbidden).await
    }

    /// Lists the objects in `home` that a selector matches, with the permissions of a ServiceAccount in the placement's namespace,
    /// or without one with Chandler's own.
    pub async fn list(
        &self,
        placement: &Placement,
        account: Option<&str>,
        home: &str,
        list: &ObjectList,
        selector: &str,
    ) -> Result<Arc<Value>, Problem> {
        let namespace = &placement.namespace;
        let kind = self.kind(&list.api_version, &list.kind).await?;
        let (resource, scope) = &*kind;
        let home = segment(home)?;
        let within = (*scope == Scope::Namespaced).then_some(home);
        let reading = Reading {
            user: account.map(|account| user(namespace, account)).transpose()?,
            collection: DynamicObject::url_path(resource, within),
            what: What::Selector(selector.to_owned()),
        };
        let forbidden = |refused: &str| match account {
            None => format!(
                "set spec.serviceAccountName to a ServiceAccount that may list them, or let Chandler list {} in namespace \
                 {home}",
                resource.plural
            ),
            Some(account) if refused == "serviceaccounts" && resource.plural != refused => {
                impersonation(namespace, account)
            }
            Some(account) => rule(namespace, account, resource, within, "", "list"),
        };
        let listed = self.get(placement, &reading, forbidden).await?;
        let more = listed.pointer("/metadata/continue").and_then(Value::as_str);
        if more.is_some_and(|more| !more.is_empty()) {
            let message = format!("there are more than {MAX_LISTED} objects; make the selector narrower");
            return Err(failed(Category::InvalidSpec, message));
        }
        Ok(listed)
    }

    async fn kind(&self, api_version: &str, kind: &str) -> Result<Arc<(ApiResource, Scope)>, Problem> {
        let bad = || bad_name(api_version);
        let version: GroupVersion = api_version.parse().map_err(|_| bad())?;
        for part in [&version.group, &version.version] {
            if !part.is_empty() {
                segment(part)?;
            }
        }
        let kind = version.with_kind(kind);
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
        placement: &Placement,
        reading: &Reading,
        forbidden: impl Fn(&str) -> String,
    ) -> Result<Arc<Value>, Problem> {
        let forbidden = |refused: &str| match &reading.user {
            Some(_) if refused != "serviceaccounts" => forbidden(refused),
            _ if !self.of_user => forbidden(refused),
            None => "your own permissions, which plans use, do not allow it".to_owned(),
            Some(user) => {
                format!("your own permissions, which plans use, do not allow you to impersonate {user}")
            }
        };
        let fetch = async {
            let requests = Request::new(&reading.collection);
            let request = match &reading.what {
                What::Name(name) => requests.get(name, &GetParams::default()),
                What::Selector(selector) => {
                    requests.list(&ListParams::default().labels(selector).limit(MAX_LISTED))
                }
            };
            let mut request = request.map_err(|_| bad_name(&reading.collection))?;
            if let Some(user) = &reading.user {
                let user = user.parse().map_err(|_| bad_name(user))?;
                request.headers_mut().insert("impersonate-user", user);
            }
            // Not decoded by the client, which writes an object that it cannot decode to the log.
            let answer =
                self.client.request_stream(request).await.map_err(|error| problem(&error, forbidden))?;
            let text = text_of(answer).await?;
            let object = serde_json::from_slice(&text)
                .map_err(|_| failed(Category::Internal, "the answer is not JSON"))?;
            Ok(Arc::new(object))
        };
        let read = self.read.get(reading, fetch).await;
        match (&self.watches, &read) {
            (Some(watches), Ok(read)) => watches.keep(reading, placement, Some(read)),
            (Some(watches), Err(Problem::Absent)) => watches.keep(reading, placement, None),
            (None, _) | (Some(_), Err(Problem::Unreadable(_))) => {}
        }
        read
    }
}

/// Reads an answer, unless it is too large.
async fn text_of(answer: impl futures::AsyncRead) -> Result<Vec<u8>, Problem> {
    let mut text = Vec::new();
    let limit = u64::try_from(MAX_ANSWER).unwrap_or(u64::MAX);
    let read = std::pin::pin!(answer).take(limit + 1).read_to_end(&mut text).await;
    match read {
        Ok(size) if size > MAX_ANSWER => Err(Problem::Unreadable(too_large(MAX_ANSWER))),
        Ok(_) => Ok(text),
        Err(error) => Err(failed(Category::Unreachable, format!("the answer ended early: {}", error.kind()))),
    }
}

/// Returns why objects with more than this many bytes are refused.
pub fn too_large(limit: usize) -> Unreadable {
    let message =
        format!("it is larger than {} MiB; name less, for example by a narrower selector", limit >> 20);
    Unreadable::Failed(Failure::new(Category::InvalidSpec, message))
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

/// Returns the user name of a ServiceAccount.
///
/// The API server adds the groups of the ServiceAccount. Impersonating them explicitly would require the permission to impersonate
/// groups, which cannot be restricted to those groups.
fn user(namespace: &str, account: &str) -> Result<String, Problem> {
    Ok(format!("system:serviceaccount:{}:{}", segment(namespace)?, account_name(account)?))
}

/// Returns how to allow a ServiceAccount to read objects. `names` is the part of the rule that restricts their names.
fn rule(
    namespace: &str,
    account: &str,
    resource: &ApiResource,
    within: Option<&str>,
    names: &str,
    verb: &str,
) -> String {
    let (role, location) = match within {
        Some(within) => ("Role", format!("in namespace {within}, ")),
        None => ("ClusterRole", String::new()),
    };
    format!(
        "{location}bind ServiceAccount {namespace}/{account} to a {role} with the rule {{apiGroups: [{:?}], resources: \
         [{}]{names}, verbs: [{verb}]}}",
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

    #[tokio::test]
    async fn answers_are_read_up_to_a_size() {
        let text = vec![b' '; MAX_ANSWER + 1];
        assert_eq!(text_of(&text[1..]).await.ok().map(|text| text.len()), Some(MAX_ANSWER));
        let Err(Problem::Unreadable(why)) = text_of(&text[..]).await else { panic!("it is too large") };
        let failure = why.failure("the list of Secret");
        assert_eq!(failure.category, Category::InvalidSpec);
        assert!(failure.message.contains("larger than 4 MiB"), "{failure}");
    }

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
