//! One pass over one Extension: finds out what it publishes, puts it on the shelf, and says so.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use chandler_api::extensions::{Extension, ExtensionSpec, ExtensionStatus, ExtensionVersion, PackageSource};
use chandler_core::{
    backoff,
    conditions::{self, Status, Wanted},
    failure::Failure,
    poll::Poll,
    resolution::{Published, published},
};
use chandler_source::PublishedVersion;
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _, runtime::controller::Action};

use super::{ExtensionContext, shelf::Volume};
use crate::{Error, queue, status};

/// A chart of a source; the version is left out.
type Chart = PackageSource;
type Offered = HashMap<Chart, Vec<PublishedVersion>>;

/// Publishes one Extension.
pub async fn reconcile(object: Arc<Extension>, context: Arc<ExtensionContext>) -> Result<Action, Error> {
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    match context.offered(&object).await {
        Ok(offered) => publish(object, &context, &offered).await,
        Err(failure) => {
            // What was published before stays so; what never was is awaited.
            let message = failure.to_string();
            let trouble =
                Wanted { type_: "Ready", status: Status::False, reason: failure.category.as_str(), message };
            let known = object.status.clone().unwrap_or_default();
            tell(&object, &context, trouble, known).await?;
            Ok(Action::requeue(backoff::delay(failure.category, 2, &object.uid().unwrap_or_default())))
        }
    }
}

async fn publish(
    object: Arc<Extension>,
    context: &ExtensionContext,
    offered: &Offered,
) -> Result<Action, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let stated = |version: &ExtensionVersion| {
        let wanted = version.source.version.as_ref().unwrap_or(&version.version);
        let listed = offered.get(&chart(&version.source))?.iter().find(|listed| listed.version == *wanted);
        listed.and_then(|listed| listed.kubernetes.clone())
    };
    let followed = object.spec.follow_kubernetes.as_ref();
    let followed = followed.and_then(|_| offered.get(&followed_chart(&object.spec)?));
    let tags = followed.into_iter().flatten().map(|listed| listed.version.as_str());
    let published = published(&object.spec, stated, tags);
    let (ready, status) = said(&published);
    tell(&object, context, ready, status).await?;
    let follows = !offered.is_empty();
    let seed = object.uid().unwrap_or_default();
    let next = if follows {
        Action::requeue(Poll::new(context.poll_interval, &seed).wait(Timestamp::now()))
    } else {
        queue::resync(&*object)
    };
    let volume = Volume { extension: object, published: Arc::new(published) };
    if context.shelf.put(&namespace, &name, volume) {
        context.changed(&namespace);
    }
    Ok(next)
}

impl ExtensionContext {
    /// What the sources offer that have to be asked: those of versions that state no Kubernetes of their own, and the one
    /// whose tags are followed.
    async fn offered(&self, object: &Extension) -> Result<Offered, Failure> {
        let spec = &object.spec;
        let unstated = spec.versions.iter().filter(|version| version.kubernetes.is_none());
        let charts: HashSet<_> =
            unstated.map(|version| chart(&version.source)).chain(followed_chart(spec)).collect();
        let own = object.namespace().unwrap_or_default();
        let mut offered = HashMap::new();
        for chart in charts {
            let versions = self.versions(&own, &chart).await?;
            offered.insert(chart, versions);
        }
        Ok(offered)
    }

    async fn versions(&self, own: &str, chart: &Chart) -> Result<Vec<PublishedVersion>, Failure> {
        let (repository, access) = self.catalogs.repository(own, chart).await?;
        Ok(self.packages.versions(&repository, &chart.chart, &access).await?)
    }
}

fn chart(source: &PackageSource) -> Chart {
    PackageSource { version: None, ..source.clone() }
}

fn followed_chart(spec: &ExtensionSpec) -> Option<Chart> {
    let follow = spec.follow_kubernetes.clone()?;
    Some(PackageSource {
        repository: follow.repository,
        catalog: follow.catalog,
        chart: follow.chart,
        version: None,
    })
}

fn said(published: &Published) -> (Wanted, ExtensionStatus) {
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
        (Status::False, "NothingToChoose", "there is no version, or every one is withdrawn".to_owned())
    } else {
        (Status::True, "Published", String::new())
    };
    let newest = usable.iter().map(|known| &known.name).max().map(|name| name.text.clone());
    let available = u32::try_from(usable.len()).ok();
    let ready = Wanted { type_: "Ready", status, reason, message };
    (ready, ExtensionStatus { newest, available, ..ExtensionStatus::default() })
}

async fn tell(
    object: &Extension,
    context: &ExtensionContext,
    ready: Wanted,
    known: ExtensionStatus,
) -> Result<(), Error> {
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
