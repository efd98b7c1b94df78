//! One pass over one Extension: finds out what it publishes, puts it on the registry, and says so.

use std::sync::Arc;

use chandler_api::{
    extensions::{Extension, ExtensionStatus},
    reasons::ExtensionReason,
};
use chandler_core::{
    backoff,
    conditions::{self, NewCondition, Status},
    poll::Poll,
    resolution::Published,
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _, runtime::controller::Action};

use super::{RegisteredExtension, offers::Found};
use crate::{ReconcileError, extension::ExtensionContext, queue, status};

/// Publishes one Extension.
pub async fn reconcile(
    object: Arc<Extension>,
    context: Arc<ExtensionContext>,
) -> Result<Action, ReconcileError> {
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    match context.offers.published(&object).await {
        Ok(found) => publish(object, &context, found).await,
        Err(failure) => {
            // What was published before stays so; what never was is awaited.
            let message = failure.to_string();
            let trouble = NewCondition {
                type_: "Ready",
                status: Status::False,
                reason: ExtensionReason::Failed(failure.category).into(),
                message,
            };
            let known = object.status.clone().unwrap_or_default();
            tell(&object, &context, trouble, known).await?;
            Ok(Action::requeue(backoff::delay(failure.category, 2, &object.uid().unwrap_or_default())))
        }
    }
}

async fn publish(
    object: Arc<Extension>,
    context: &ExtensionContext,
    found: Found,
) -> Result<Action, ReconcileError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let Found { published, asked } = found;
    let (ready, status) = said(&published);
    tell(&object, context, ready, status).await?;
    let seed = object.uid().unwrap_or_default();
    let next = if asked {
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

fn said(published: &Published) -> (NewCondition, ExtensionStatus) {
    let usable: Vec<_> =
        published.versions.iter().filter(|known| !known.withdrawn && known.defect.is_none()).collect();
    let defects: Vec<_> = published
        .versions
        .iter()
        .filter_map(|known| Some(format!("{}: {}", known.name, known.defect.as_ref()?)))
        .collect();
    let (status, reason, message) = if !defects.is_empty() {
        (Status::False, ExtensionReason::InvalidVersion, defects.join("; "))
    } else if usable.is_empty() {
        (
            Status::False,
            ExtensionReason::NoAvailableVersion,
            "there is no version, or every one is withdrawn".to_owned(),
        )
    } else {
        (Status::True, ExtensionReason::Published, String::new())
    };
    let newest = usable.iter().map(|known| &known.name).max().map(|name| name.text.clone());
    let available = u32::try_from(usable.len()).ok();
    let ready = NewCondition { type_: "Ready", status, reason: reason.into(), message };
    (ready, ExtensionStatus { newest, available, ..ExtensionStatus::default() })
}

async fn tell(
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
