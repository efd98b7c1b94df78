//! `chandler logs`: the timeline of a placement and its releases.

mod timeline;

use anyhow::{Context as _, Result};
use chandler_view::{
    description::{FoundResource, ResourceArgument},
    fleet::{Fleet, FleetReader, Kind, Placement, Release},
};
use clap::Args;
use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};

use self::timeline::{Entry, Subject, Timeline};
use crate::{connection::Connection, output::Screen, progress::Progress};

/// Show a timeline of a placement and its releases
///
/// The timeline consists of the Events and the `Ready` conditions of the placement and its releases. The message of the
/// condition shows the current step of a running operation. By default, Kubernetes deletes Events after an hour.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Name of a placement, or KIND/NAME with a kind such as `hcp`, `instance` or `release`
    #[arg(value_name = "[KIND/]NAME")]
    name: String,
    /// Show new entries until interrupted with Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Show only this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Namespace of the objects [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(arguments: LogsArgs) -> Result<()> {
    let LogsArgs { name, follow, cluster, namespace, connection } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let argument = ResourceArgument::parse(&name)?;
    let reader = FleetReader::new(client.clone(), Some(namespace.clone()));
    let fleet = reader.read(&Progress::start()).await?;
    let subject = subject(&argument.find(&fleet, &namespace)?, cluster);
    let kinds = subject.kinds();
    let mut timeline = Timeline::new(subject);
    let events: Api<Event> = Api::namespaced(client, &namespace);
    let entries = past_entries(&mut timeline, &fleet, &events).await?;
    let screen = Screen::detect();
    for entry in entries {
        println!("{}", entry.text(screen));
    }
    if follow {
        let objects = kinds.into_iter().map(|kind| (kind, reader.api(kind))).collect();
        tokio::select! {
            result = follow_timeline(&mut timeline, objects, events, screen) => result?,
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    Ok(())
}

fn subject(resource: &FoundResource<'_>, cluster: Option<String>) -> Subject {
    match resource {
        FoundResource::Placement(placement) => Subject::of_placement(placement, cluster),
        FoundResource::Release(release) => Subject::of_release(release),
    }
}

/// Returns the entries of all existing objects and Events, sorted by time.
async fn past_entries(timeline: &mut Timeline, fleet: &Fleet, events: &Api<Event>) -> Result<Vec<Entry>> {
    let now = Timestamp::now();
    let mut entries: Vec<Entry> =
        fleet.releases.iter().filter_map(|release| timeline.release(release, now)).collect();
    entries.extend(fleet.placements.iter().filter_map(|placement| timeline.placement(placement, now)));
    let events = events.list(&ListParams::default()).await.context("listing Events")?;
    entries.extend(events.iter().filter_map(|event| timeline.event(event)));
    entries.sort_by_key(|entry| entry.at);
    Ok(entries)
}

/// An object or Event from a watch.
enum Watched {
    Object(&'static Kind, Box<DynamicObject>),
    Event(Box<Event>),
}

/// Prints new entries until a watch ends.
async fn follow_timeline(
    timeline: &mut Timeline,
    objects: Vec<(&'static Kind, Api<DynamicObject>)>,
    events: Api<Event>,
    screen: Screen,
) -> Result<()> {
    let objects = objects.into_iter().map(|(kind, api)| {
        watch(api).map(move |result| result.map(|object| Watched::Object(kind, Box::new(object)))).boxed()
    });
    let events = watch(events).map(|result| result.map(|event| Watched::Event(Box::new(event)))).boxed();
    let mut all = stream::select_all(objects.chain([events]));
    while let Some(watched) = all.next().await {
        let entry = match watched {
            Ok(Watched::Object(kind, object)) => object_entry(timeline, kind, &object),
            Ok(Watched::Event(event)) => timeline.event(&event),
            // The watch restarts automatically.
            Err(error) => {
                eprintln!("watch failed, retrying: {error}");
                None
            }
        };
        if let Some(entry) = entry {
            println!("{}", entry.text(screen));
        }
    }
    Ok(())
}

fn object_entry(timeline: &mut Timeline, kind: &Kind, object: &DynamicObject) -> Option<Entry> {
    let now = Timestamp::now();
    if kind.is_placement() {
        timeline.placement(&Placement::from_object(kind, object), now)
    } else {
        timeline.release(&Release::from_object(kind, object), now)
    }
}

/// Returns the existing objects, then each object that is created or changed.
fn watch<K>(api: Api<K>) -> impl Stream<Item = Result<K, watcher::Error>> + Send
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).default_backoff().applied_objects()
}
