//! Starts the watch of AddonTenancies. Without their CRD there are none, which is no reason not to start. A manager without the
//! permission to list them gets no answer to the question whether they are served.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::json;

use super::{Tenancies, resource};
use crate::{StartupError, error::found, routing::Router, tasks::Tasks};

/// How often a manager looks whether the kind is served, and how soon it asks again if it got no answer.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Name that no object can have.
const NOT_LISTED: &str = "(not listed yet)";

/// Why it is not known whether AddonTenancies are served.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    /// The manager may not list them.
    #[error(transparent)]
    Forbidden(kube::Error),
    #[error(transparent)]
    Failed(kube::Error),
    #[error("the API server did not answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Returns whether AddonTenancies are watched. Fails if the manager may not list them, unless they are ignored explicitly: it must
/// not do what they do not allow because it cannot see them.
pub async fn are_watched(client: &Client, are_ignored: bool) -> Result<bool, StartupError> {
    if are_ignored {
        tracing::warn!("AddonTenancies are ignored (--ignore-tenancies)");
        return Ok(false);
    }
    match is_served(client).await {
        // After a timeout it is asked again before anything is reconciled.
        Ok(_) | Err(Unknown::Timeout) => Ok(true),
        Err(Unknown::Forbidden(source)) => Err(StartupError::TenanciesForbidden { source }),
        Err(Unknown::Failed(source)) => {
            let kind = format!("{} {}", resource().api_version, resource().kind);
            Err(StartupError::NotServed { kind, source })
        }
    }
}

/// Asks whether the API server has the CRD.
async fn is_served(client: &Client) -> Result<bool, Unknown> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let one = ListParams::default().limit(1);
    match tokio::time::timeout(TIMEOUT, api.list_metadata(&one)).await.map(found) {
        Ok(Ok(listed)) => Ok(listed.is_some()),
        Ok(Err(error)) if matches!(&error, kube::Error::Api(status) if status.code == 403) => {
            Err(Unknown::Forbidden(error))
        }
        Ok(Err(error)) => Err(Unknown::Failed(error)),
        Err(_) => Err(Unknown::Timeout),
    }
}

impl Tenancies {
    /// Watches AddonTenancies. Returns when all that exist are known. Without their CRD none can exist: then this returns at once,
    /// and they are watched as soon as the API server serves them.
    pub async fn start(
        &self,
        tasks: &mut Tasks,
        client: &Client,
        router: &Router,
    ) -> Result<(), StartupError> {
        // Another manager may have led for long since this one has started, so that what it saw then is outdated.
        let served = loop {
            match is_served(client).await {
                Ok(served) => break served,
                Err(Unknown::Forbidden(source)) => return Err(StartupError::TenanciesForbidden { source }),
                Err(why) => tracing::warn!(%why, "AddonTenancies cannot be listed; retrying"),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        if served {
            let mut listed = self.watch(client.clone(), router.clone());
            return if listed.is_complete().await { Ok(()) } else { Err(StartupError::WatchEnded) };
        }
        tracing::warn!(
            "the management cluster does not serve AddonTenancies, so there are none; apply Chandler's CRDs to use them"
        );
        tasks.spawn(self.clone().watch_when_served(client.clone(), router.clone()));
        Ok(())
    }

    /// Watches them once they are served. From then on, and while the answer is not known, nothing is allowed until they are listed.
    async fn watch_when_served(self, client: Client, router: Router) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match is_served(&client).await {
                Ok(true) => break,
                Ok(false) => self.replace(&[], &router),
                Err(why) => {
                    tracing::warn!(%why, "AddonTenancies cannot be listed; retrying");
                    self.replace(&[not_listed()], &router);
                }
            }
        }
        tracing::info!("the management cluster serves AddonTenancies now");
        self.replace(&[not_listed()], &router);
        let mut listed = self.watch(client, router.clone());
        // A list without objects reports none.
        if listed.is_complete().await && self.is_not_listed() {
            self.replace(&[], &router);
        }
    }

    fn replace(&self, objects: &[Arc<DynamicObject>], router: &Router) {
        if self.set(objects) {
            router.on_tenancies();
        }
    }

    fn is_not_listed(&self) -> bool {
        self.state.lock().objects.iter().any(|object| object.name_any() == NOT_LISTED)
    }
}

/// Returns an AddonTenancy that cannot be read, for those that are not known yet.
fn not_listed() -> Arc<DynamicObject> {
    let mut object = DynamicObject::new(NOT_LISTED, &resource());
    object.data = json!({"spec": {"namespaces": null}});
    Arc::new(object)
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::*;

    /// A client whose requests fail with this code. `None` means that there is no answer.
    fn client(code: Option<u16>) -> Client {
        let refuse = move |_: http::Request<Body>| async move {
            let code = code.ok_or_else(|| std::io::Error::other("unavailable"))?;
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
            let body = Body::from(status.to_string().into_bytes());
            http::Response::builder().status(code).body(body).map_err(std::io::Error::other)
        };
        Client::new(tower::service_fn(refuse), "default")
    }

    #[tokio::test]
    async fn a_manager_that_may_not_list_tenancies_does_not_start() {
        let error = are_watched(&client(Some(403)), false).await.unwrap_err().to_string();
        assert!(error.contains("chandler-system-manager-cluster"), "{error}");
        assert!(error.contains("--ignore-tenancies"), "{error}");
        for code in [None, Some(500)] {
            are_watched(&client(code), false).await.unwrap_err();
        }
        assert!(!are_watched(&client(Some(403)), true).await.unwrap());
    }

    #[tokio::test]
    async fn a_manager_starts_without_the_definition_of_tenancies() {
        assert!(are_watched(&client(Some(404)), false).await.unwrap(), "it is looked for again");
        assert!(!is_served(&client(Some(404))).await.unwrap());
        assert!(matches!(is_served(&client(Some(403))).await, Err(Unknown::Forbidden(_))));
        assert!(matches!(is_served(&client(Some(500))).await, Err(Unknown::Failed(_))));
        assert!(matches!(is_served(&client(None)).await, Err(Unknown::Failed(_))));
    }

    #[tokio::test]
    async fn nothing_is_allowed_until_they_are_listed() {
        let tenancies = Tenancies::new(client(None), None);
        assert!(tenancies.of("team").await.is_ok());
        tenancies.set(&[not_listed()]);
        assert!(tenancies.is_not_listed());
        assert!(tenancies.of("team").await.is_err());
        tenancies.set(&[]);
        assert!(!tenancies.is_not_listed() && tenancies.of("team").await.is_ok());
    }
}
