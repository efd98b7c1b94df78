//! Reconciles an Extension: reads its versions, registers them, and updates the status.

use std::sync::Arc;

use chandler_api::{
    extensions::{Extension, ExtensionSpec, ExtensionStatus, ExtensionVersion},
    reasons::ExtensionReason,
};
use chandler_core::{
    backoff,
    conditions::{self, NewCondition, Status},
    failure::Category,
    poll::Poll,
    resolution::{Candidate, Published},
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _, runtime::controller::Action};

use super::{RegisteredExtension, offers::Offer};
use crate::{ReconcileError, extension::ExtensionContext, queue, status};

/// Reconciles an Extension.
pub async fn reconcile(
    object: Arc<Extension>,
    context: Arc<ExtensionContext>,
) -> Result<Action, ReconcileError> {
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    match context.offers.published(&object).await {
        Ok(offer) => publish(object, &context, offer).await,
        Err(failure) => {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            // The other extensions no longer wait for this one.
            if context.registry.insert_unread(&namespace, &name, object.clone()) {
                context.router.on_published(&namespace);
            }
            let message = failure.to_string();
            let ready = NewCondition {
                type_: "Ready",
                status: Status::False,
                reason: ExtensionReason::Failed(failure.category).into(),
                message,
            };
            let known = object.status.clone().unwrap_or_default();
            update_status(&object, &context, ready, known).await?;
            Ok(Action::requeue(backoff::delay(failure.category, 2, &object.uid().unwrap_or_default())))
        }
    }
}

async fn publish(
    object: Arc<Extension>,
    context: &ExtensionContext,
    offer: Offer,
) -> Result<Action, ReconcileError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let Offer { published, polled, failed } = offer;
    let (ready, status) = new_status(&object.spec, &published, failed);
    update_status(&object, context, ready, status).await?;
    let seed = object.uid().unwrap_or_default();
    let next = if let Some(category) = failed {
        Action::requeue(backoff::delay(category, 2, &seed))
    } else if polled {
        Action::requeue(Poll::new(context.poll_interval, &seed).wait(Timestamp::now()))
    } else {
        queue::resync(&*object)
    };
    let registered = RegisteredExtension { extension: object, published: Arc::new(published) };
    if context.registry.insert(&namespace, &name, registered) {
        context.router.on_published(&namespace);
    }
    Ok(next)
}

/// `failed` is the category of the failure of a listed version that its source does not offer.
fn new_status(
    spec: &ExtensionSpec,
    published: &Published,
    failed: Option<Category>,
) -> (NewCondition, ExtensionStatus) {
    let usable: Vec<_> = published.versions.iter().filter(|known| known.is_usable()).collect();
    let defects: Vec<_> = published
        .versions
        .iter()
        .filter_map(|known| Some(format!("{}: {}", known.name, known.defect.as_ref()?)))
        .collect();
    let is_listed =
        |known: &&Candidate| spec.versions.iter().any(|version| version.version == known.name.text);
    let not_offered = published.versions.iter().filter(is_listed);
    let not_offered: Vec<_> = not_offered
        .filter_map(|known| Some(format!("{}: {}", known.name, known.not_offered.as_ref()?)))
        .collect();
    let (status, reason, message) = if !defects.is_empty() {
        (Status::False, ExtensionReason::InvalidVersion, defects.join("; "))
    } else if let Some(category) = failed {
        (Status::False, ExtensionReason::Failed(category), not_offered.join("; "))
    } else if usable.is_empty() {
        (
            Status::False,
            ExtensionReason::NoAvailableVersion,
            "there is no version, or all versions are withdrawn".to_owned(),
        )
    } else {
        (Status::True, ExtensionReason::Published, String::new())
    };
    let newest = usable.iter().map(|known| &known.name).max().map(|name| name.text.clone());
    let is_newest = |version: &&ExtensionVersion| Some(&version.version) == newest.as_ref();
    let app_version = spec.versions.iter().find(is_newest).and_then(|version| version.app_version.clone());
    let available = u32::try_from(usable.len()).ok();
    let ready = NewCondition { type_: "Ready", status, reason: reason.into(), message };
    (ready, ExtensionStatus { newest, app_version, available, ..ExtensionStatus::default() })
}

async fn update_status(
    object: &Extension,
    context: &ExtensionContext,
    ready: NewCondition,
    known: ExtensionStatus,
) -> Result<(), ReconcileError> {
    let old = object.status.clone().unwrap_or_default();
    let generation = object.meta().generation;
    let new = ExtensionStatus {
        conditions: conditions::merge(&old.conditions, vec![ready], generation, Timestamp::now()),
        observed_generation: generation,
        ..known
    };
    if new != old {
        status::write(&context.client, object, &new).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chandler_core::{failure::Failure, resolution::published};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_that_is_not_offered_is_reported_and_the_others_are_available() {
        let source = json!({"repository": "https://charts.example", "chart": "web"});
        let spec: ExtensionSpec = serde_json::from_value(json!({"versions": [
            {"version": "1.0.0", "source": source}, {"version": "2.0.0", "source": source},
        ]}))
        .unwrap();
        // The second one is followed and not listed.
        let refused = ["2.0.0", "3.0.0"].map(|version| {
            let failure = Failure::new(Category::InvalidSpec, "the catalog does not offer it");
            (version.to_owned(), failure)
        });
        let refused = BTreeMap::from(refused);
        let all = published(&spec, |_| None, ["3.0.0"]).without(&refused);
        let (ready, status) = new_status(&spec, &all, Some(Category::InvalidSpec));
        assert_eq!(ready.message, "2.0.0: the catalog does not offer it");
        assert_eq!(ready.reason, ExtensionReason::Failed(Category::InvalidSpec).into());
        assert_eq!((status.newest.as_deref(), status.available), (Some("1.0.0"), Some(1)));
    }
}
