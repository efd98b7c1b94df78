//! `chandler logs`: what happened to a placement, and what happens.

mod timeline;

use anyhow::{Context as _, Result};
use chandler_view::{
    description::{Chosen, Target},
    fleet::{Fleet, Kind, Placement, Reader, Release},
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

use self::timeline::{Line, Subject, Timeline};
use crate::{connection::Connection, output::Screen, progress::Progress};

/// Show what happened to a placement and its releases, as a timeline
///
/// It is made of the Events and of the `Ready` condition of the placement and its releases, which is all that a manager
/// tells about a running operation: each of its steps is in the condition's message. The management cluster keeps Events
/// for an hour unless it is told otherwise.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// A placement's name, or KIND/NAME with a kind such as `hcp`, `instance` or `release`
    #[arg(value_name = "[KIND/]NAME")]
    name: String,
    /// Stay and show what happens next, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Namespace to look at [default: that of the kubeconfig's context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(arguments: LogsArgs) -> Result<()> {
    let LogsArgs { name, follow, cluster, namespace, connection } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let target = Target::parse(&name)?;
    let reader = Reader::new(client.clone(), Some(namespace.clone()));
    let fleet = reader.fleet(&Progress::start()).await?;
    let subject = subject(&target.choose(&fleet, &namespace)?, cluster);
    let kinds = subject.kinds();
    let mut timeline = Timeline::new(subject);
    let events: Api<Event> = Api::namespaced(client, &namespace);
    let past = past(&mut timeline, &fleet, &events).await?;
    let screen = Screen::detect();
    for line in past {
        println!("{}", line.text(screen));
    }
    if follow {
        let objects = kinds.into_iter().map(|kind| (kind, reader.api(kind))).collect();
        tokio::select! {
            followed = follow_on(&mut timeline, objects, events, screen) => followed?,
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    Ok(())
}

fn subject(chosen: &Chosen<'_>, cluster: Option<String>) -> Subject {
    match chosen {
        Chosen::Placement(placement) => Subject::of_placement(placement, cluster),
        Chosen::Release(release) => Subject::of_release(release),
    }
}

/// What is known already, in order.
async fn past(timeline: &mut Timeline, fleet: &Fleet, events: &Api<Event>) -> Result<Vec<Line>> {
    let now = Timestamp::now();
    let mut lines: Vec<Line> =
        fleet.releases.iter().filter_map(|release| timeline.release(release, now)).collect();
    lines.extend(fleet.placements.iter().filter_map(|placement| timeline.placement(placement, now)));
    let events = events.list(&ListParams::default()).await.context("listing Events")?;
    lines.extend(events.iter().filter_map(|event| timeline.event(event)));
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

/// Something that a watch saw.
enum Seen {
    Object(&'static Kind, Box<DynamicObject>),
    Event(Box<Event>),
}

async fn follow_on(
    timeline: &mut Timeline,
    objects: Vec<(&'static Kind, Api<DynamicObject>)>,
    events: Api<Event>,
    screen: Screen,
) -> Result<()> {
    let objects = objects.into_iter().map(|(kind, api)| {
        watched(api).map(move |seen| seen.map(|object| Seen::Object(kind, Box::new(object)))).boxed()
    });
    let events = watched(events).map(|seen| seen.map(|event| Seen::Event(Box::new(event)))).boxed();
    let mut all = stream::select_all(objects.chain([events]));
    while let Some(seen) = all.next().await {
        let line = match seen {
            Ok(Seen::Object(kind, object)) => told(timeline, kind, &object),
            Ok(Seen::Event(event)) => timeline.event(&event),
            // The watch starts again by itself.
            Err(error) => {
                eprintln!("the management cluster does not answer: {error}");
                None
            }
        };
        if let Some(line) = line {
            println!("{}", line.text(screen));
        }
    }
    Ok(())
}

fn told(timeline: &mut Timeline, kind: &Kind, object: &DynamicObject) -> Option<Line> {
    let now = Timestamp::now();
    if kind.is_placement() {
        timeline.placement(&Placement::of(kind, object), now)
    } else {
        timeline.release(&Release::of(kind, object), now)
    }
}

/// Every state of every object, from now on; those that are there come first.
fn watched<K>(api: Api<K>) -> impl Stream<Item = Result<K, watcher::Error>> + Send
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).default_backoff().applied_objects()
}
