//! Plans what placements would change on clusters, with the code of their controllers, from objects that were listed once. It
//! writes nothing: neither on the management cluster nor on workload clusters.

mod placement;
mod release;
mod situation;
mod source_reader;

use std::{path::PathBuf, sync::Arc, time::Duration};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    extensions::{
        AddonPolicy, AddonRelease, Extension, ExtensionCatalog, ExtensionInstance, PlacementKindName, Source,
    },
};
use chandler_core::{
    addresses::AddressPolicy,
    change_plan::{DiffView, ObjectPlan, PlanPart},
    failure::Failure,
    schedule::Limits,
    tunnel::ProxyPolicy,
};
use chandler_source::Packages;
use chandler_workload::{Connections, WATCH_SILENCE};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Client, ResourceExt as _,
    api::DynamicObject,
    runtime::{reflector::store::Writer, watcher::Event},
};
use tokio::sync::watch as channel;

pub use self::source_reader::SourceReader;
use self::{
    placement::{KindPlanner, Prepared},
    situation::PlannedClaims,
};
use crate::{
    caches::AllKinds,
    catalog::Catalogs,
    clusters::{self, Clusters},
    events::Events,
    extension::{Listed, OneShotResolver, Platform, resolver},
    kinds::ComposeServices,
    locks::Mutex,
    metrics::Metrics,
    operations::Operations,
    pair::{KindController, Pair},
    parameters::ParameterSources,
    policies::Policies,
    quotas::Quotas,
    references::References,
    release::{NamedCatalogs, ReconcileStates, ReleaseCaches},
    routing::{Index, Queues, Router},
    run::{ManagementCaches, Shared, ToolOptions, records_of, supervise},
    sources::{SourcePackages, Sources},
    templates::{Evaluations, TemplateQuota, Templates},
    tenancies::Tenancies,
    tunnel::Tunnels,
    watch::{Change, Scope},
};

/// Intervals of controllers, which do not run.
const NEVER: Duration = Duration::from_hours(24);

/// How plans are made.
#[derive(Debug)]
pub struct PlannerOptions {
    /// The namespace of all planned objects. `None` means that there are several.
    pub namespace: Option<String>,
    pub platform: Platform,
    pub packages: Arc<Packages>,
    /// The binaries of the package tools.
    pub tools: Vec<PathBuf>,
    /// The binary that serves value templates.
    pub templates: PathBuf,
    /// Where descriptions of tools are kept.
    pub store: PathBuf,
    /// The proxies that kubeconfigs may name.
    pub proxies: ProxyPolicy,
    /// The addresses that API servers of clusters may have.
    pub addresses: AddressPolicy,
    pub view: DiffView,
}

/// The objects from which plans are made: those of the management cluster, replaced by those that are planned.
#[derive(Debug, Default)]
pub struct PlannerObjects {
    pub clusters: Vec<DynamicObject>,
    pub charts: Vec<HelmChartProxy>,
    pub chart_releases: Vec<HelmReleaseProxy>,
    pub instances: Vec<ExtensionInstance>,
    pub releases: Vec<AddonRelease>,
    pub policies: Vec<AddonPolicy>,
    pub extensions: Vec<Extension>,
    pub catalogs: Vec<ExtensionCatalog>,
    pub sources: Vec<Source>,
    /// AddonTenancies. Empty if the user may not list them.
    pub tenancies: Vec<DynamicObject>,
}

/// The object whose changes are planned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanTarget {
    /// The kind of the placement, or of the placement of the release object.
    pub kind: PlacementKindName,
    /// Whether it is a release object.
    pub is_release: bool,
    pub namespace: String,
    pub name: String,
    /// Only the changes of this cluster. `None` means all.
    pub cluster: Option<String>,
}

/// What is to be planned for an object of one of the kinds.
enum PreparedTarget {
    Chart(Prepared<HelmReleaseProxy>),
    Instance(Prepared<AddonRelease>),
}

/// Plans changes.
pub struct Planner {
    charts: KindPlanner<HelmChartProxy>,
    instances: KindPlanner<ExtensionInstance>,
    resolver: OneShotResolver,
    sources: SourceReader,
}

impl Planner {
    /// Must be called within a Tokio runtime. Starts no process and sends no request.
    pub fn new(client: &Client, options: PlannerOptions, objects: PlannerObjects) -> Self {
        let (platform, view) = (options.platform.clone(), options.view);
        let packages = options.packages.clone();
        let catalogs = readable(objects.catalogs);
        let sources = SourceReader::new(
            client.clone(),
            packages.clone(),
            &platform.namespace,
            objects.sources.clone(),
            catalogs.clone(),
        );
        let (metrics, scope) = (Metrics::new(), Scope { namespace: None, labels: None });
        let index = Arc::new(Mutex::new(Index::new(&platform.namespace)));
        let (policies, mut policy_writers) = Policies::new(vec![scope], &platform.namespace);
        let router = Router::new(index.clone(), Queues::unused(&metrics));
        policy_writers.fill(objects.policies, &router);
        let mut charts = Pair::<HelmChartProxy>::new(&metrics, &index, &policies);
        charts.1.fill(objects.charts, objects.chart_releases, &router);
        let mut instances = Pair::<ExtensionInstance>::new(&metrics, &index, &policies);
        let listed = Listed {
            instances: objects.instances.clone(),
            releases: objects.releases.clone(),
            extensions: objects.extensions,
            catalogs: catalogs.clone(),
        };
        instances.1.fill(objects.instances, objects.releases, &router);
        let all_kinds = AllKinds::new(index, vec![charts.caches(), instances.caches()]);
        let shared = shared(client, options, router, all_kinds, metrics);
        shared.tenancies.set(&objects.tenancies.into_iter().map(Arc::new).collect::<Vec<_>>());
        let caches = caches(&shared, &platform.namespace, objects.clusters, catalogs, objects.sources);
        let one_shot = OneShotResolver::new(client.clone(), platform.clone(), packages, listed)
            .reading_sources(caches.source_packages.clone(), sources.clone());
        let services = ComposeServices {
            templates: Templates {
                references: caches.references.clone(),
                service: shared.template_service.clone(),
                metrics: shared.metrics.clone(),
                evaluations: Evaluations::default(),
                quota: TemplateQuota::new(None, shared.metrics.clone()),
            },
            resolver: Arc::new(resolver(&shared, &instances.0, &caches, &platform, &one_shot.registry())),
            shared: &shared,
            caches: &caches,
            sources: ParameterSources::of_user(shared.client.clone()),
        };
        let claims = PlannedClaims::default();
        Self {
            charts: KindPlanner::new(&charts.0, &services, &claims, view),
            instances: KindPlanner::new(&instances.0, &services, &claims, view),
            resolver: one_shot,
            sources,
        }
    }

    /// Plans objects. First composes all release objects, because they may claim the same releases or depend on each other.
    /// `on_target` is called before the clusters of an object are planned, and `on_part` with each part of the plan, in order.
    pub async fn plan(
        &self,
        targets: &[PlanTarget],
        on_target: &(dyn Fn(&PlanTarget) + Sync),
        on_part: &(dyn Fn(PlanPart<'_>) + Sync),
    ) -> Vec<ObjectPlan> {
        let mut prepared = Vec::with_capacity(targets.len());
        for target in targets {
            on_target(target);
            prepared.push(Box::pin(self.prepare(target)).await);
        }
        let mut plans = Vec::with_capacity(targets.len());
        for (target, prepared) in targets.iter().zip(prepared) {
            on_target(target);
            plans.push(match prepared {
                PreparedTarget::Chart(prepared) => self.charts.run(prepared, on_part).await,
                PreparedTarget::Instance(prepared) => self.instances.run(prepared, on_part).await,
            });
        }
        plans
    }

    async fn prepare(&self, target: &PlanTarget) -> PreparedTarget {
        let PlanTarget { kind, is_release, namespace, name, cluster } = target;
        let cluster = cluster.as_deref();
        match (kind, is_release) {
            (PlacementKindName::HelmChartProxy, false) => {
                PreparedTarget::Chart(self.charts.prepare(namespace, name, cluster, &self.resolver).await)
            }
            (PlacementKindName::HelmChartProxy, true) => {
                PreparedTarget::Chart(self.charts.prepare_release(namespace, name, cluster))
            }
            (PlacementKindName::ExtensionInstance, false) => {
                PreparedTarget::Instance(match self.read_sources(namespace, name).await {
                    Ok(()) => self.instances.prepare(namespace, name, cluster, &self.resolver).await,
                    Err(failure) => KindPlanner::<ExtensionInstance>::failed(namespace, name, &failure),
                })
            }
            (PlacementKindName::ExtensionInstance, true) => {
                PreparedTarget::Instance(self.instances.prepare_release(namespace, name, cluster))
            }
        }
    }

    /// Reads the Sources and catalogs that an instance refers to, and those of the other instances of its namespace: all of them
    /// determine which versions fit a cluster. A failure of another instance is ignored, as the manager does.
    async fn read_sources(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let is_beside = |instance: &ExtensionInstance| instance.namespace().as_deref() == Some(namespace);
        for instance in self.instances.placements.state_filter(is_beside) {
            let read = self.sources.read_for_instance(&instance).await;
            if instance.name_any() == name {
                read?;
            }
        }
        Ok(())
    }
}

/// Marks catalogs of files, which have no status, as read: they are read before they are used.
fn readable(mut catalogs: Vec<ExtensionCatalog>) -> Vec<ExtensionCatalog> {
    let is_unread = |catalog: &&mut ExtensionCatalog| {
        catalog.status.as_ref().is_none_or(|status| status.conditions.is_empty())
    };
    for catalog in catalogs.iter_mut().filter(is_unread) {
        let read = Condition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: "Planned".to_owned(),
            message: String::new(),
            last_transition_time: Time(Timestamp::now()),
            observed_generation: None,
        };
        catalog.status.get_or_insert_default().conditions.push(read);
    }
    catalogs
}

/// Returns what the controllers would share. Its Events are discarded.
fn shared(
    client: &Client,
    options: PlannerOptions,
    router: Router,
    all_kinds: AllKinds,
    metrics: Metrics,
) -> Shared {
    let PlannerOptions {
        namespace,
        platform: _,
        packages,
        tools,
        templates,
        store,
        proxies,
        addresses,
        view: _,
    } = options;
    let quiet = channel::channel("error").1;
    let (tools, template_service) =
        supervise(tools, templates, &store, ToolOptions::default(), &addresses, &quiet);
    let records = records_of(&tools);
    let (connections, _) = Connections::new(client.clone(), records, WATCH_SILENCE, proxies, addresses);
    Shared {
        client: client.clone(),
        scope: Scope { namespace, labels: None },
        watch_filter: None,
        router,
        all_kinds,
        release_caches: ReleaseCaches {
            reconcile_states: ReconcileStates::default(),
            operations: Operations::new(Limits::default(), metrics.clone()),
            connections,
        },
        packages,
        tools,
        template_service,
        events: Events::discard(),
        metrics,
        quotas: Quotas::default(),
        health: false,
        poll_interval: NEVER,
        source_min_interval: NEVER,
        parameters_interval: NEVER,
        platform_version_from: None,
        hooks: None,
        uninstall_timeout: NEVER,
        receiver: None,
        fleet: false,
        require_login_hosts: false,
        tenancies: Tenancies::new(client.clone(), None),
        has_tenancies: false,
    }
}

fn caches(
    shared: &Shared,
    platform: &str,
    clusters: Vec<DynamicObject>,
    catalogs: Vec<ExtensionCatalog>,
    sources: Vec<Source>,
) -> ManagementCaches {
    let mut writer = Writer::new(clusters::resource());
    for cluster in clusters {
        shared.router.on_cluster(&Change::Applied(&cluster));
        writer.apply_watcher_event(&Event::Apply(cluster));
    }
    let (client, packages) = (shared.client.clone(), shared.packages.clone());
    let sources =
        Sources::listed(client.clone(), sources, packages.clone(), platform).under(shared.tenancies.clone());
    let catalogs = Catalogs::listed(catalogs, packages.clone());
    ManagementCaches {
        clusters: Clusters::new(writer.as_reader(), shared.uninstall_timeout),
        tunnels: Tunnels::default(),
        references: References::new(client.clone(), shared.scope.clone(), shared.router.clone())
            .listing_once(),
        catalogs: NamedCatalogs::new(client, catalogs, platform.to_owned()).under(shared.tenancies.clone()),
        source_packages: SourcePackages::new(sources, packages, shared.template_service.clone()),
    }
}
