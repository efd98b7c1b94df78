//! One pass over one Extension: finds out what it publishes, puts it on the shelf, and says so.

use std::sync::Arc;

use chandler_api::extensions::{Extension, ExtensionStatus};
use chandler_core::{
    conditions::{self, Status, Wanted},
    resolution::{Published, published},
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _, runtime::controller::Action};

use super::{ExtensionContext, shelf::Volume};
use crate::{Error, queue, status};

/// Publishes one Extension.
pub async fn reconcile(object: Arc<Extension>, context: Arc<ExtensionContext>) -> Result<Action, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let published = published(&object.spec, |_| None, []);
    tell(&object, &context, &published).await?;
    let volume = Volume { extension: object.clone(), published: Arc::new(published) };
    if context.shelf.put(&namespace, &name, volume) {
        context.changed(&namespace);
    }
    Ok(queue::resync(&*object))
}

async fn tell(object: &Extension, context: &ExtensionContext, published: &Published) -> Result<(), Error> {
    let usable: Vec<_> =
        published.versions.iter().filter(|known| !known.withdrawn && known.defect.is_none()).collect();
    let defects: Vec<_> = published
        .versions
        .iter()
        .filter_map(|known| Some(format!("{}: {}", known.name, known.defect.as_ref()?)))
        .collect();
    let (status, reason, message) = if !defects.is_empty() {
        (Status::False, "Defect", defects.join("; "))
    } else if usable.is_empty() {
        (Status::False, "NothingToChoose", "every version is withdrawn".to_owned())
    } else {
        (Status::True, "Published", String::new())
    };
    let old = object.status.clone().unwrap_or_default();
    let generation = object.meta().generation;
    let ready = Wanted { type_: "Ready", status, reason, message };
    let new = ExtensionStatus {
        conditions: conditions::merge(&old.conditions, vec![ready], generation, Timestamp::now()),
        newest: usable.iter().map(|known| &known.name).max().map(|name| name.text.clone()),
        available: u32::try_from(usable.len()).ok(),
        observed_generation: generation,
    };
    if new != old {
        status::write(&context.client, object, &new).await?;
    }
    Ok(())
}
