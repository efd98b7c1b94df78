//! The kinds of placements that the manager reconciles. A new kind is a file here and a line in [`Kinds::new`].

mod extension_instance;
mod helm_chart_proxy;

use std::sync::Arc;

use chandler_api::{addons::HelmChartProxy, extensions::ExtensionInstance};
use chandler_core::placement::PlacementKind;
use kube::{Resource, api::ApiResource, core::NamespaceResourceScope};

use crate::{
    caches::PairCaches,
    extension::Resolver,
    metrics::Metrics,
    pair::{KindController, Pair},
    parameters::ParameterSources,
    placement::Compose,
    policies::Policies,
    routing::{PairQueues, SharedIndex},
    run::{ManagementCaches, Shared},
    templates::Templates,
};

/// A kind of placements whose controllers the manager runs.
pub trait ManagedKind: PlacementKind + Resource<Scope = NamespaceResourceScope> {
    /// Returns what composes the release objects of its placements.
    fn composer(services: &ComposeServices<'_>, policies: &Policies) -> Box<dyn Compose<Self>>;
}

/// The parts of the manager that a composer may use.
pub struct ComposeServices<'a> {
    pub shared: &'a Shared,
    pub caches: &'a ManagementCaches,
    pub templates: Templates,
    /// What parameters are read from. All kinds share the watches.
    pub sources: ParameterSources,
    pub resolver: Arc<Resolver>,
}

/// All kinds of placements, before they are watched.
pub struct Kinds {
    pub controllers: Vec<Box<dyn KindController>>,
    /// The resolver reads which instances and releases a cluster has.
    pub instances: Pair<ExtensionInstance>,
}

impl Kinds {
    pub fn new(metrics: &Metrics, index: &SharedIndex, policies: &Policies) -> Self {
        let (helm_chart_proxies, helm_chart_proxy_ends) =
            Pair::<HelmChartProxy>::new(metrics, index, policies);
        let (instances, instance_ends) = Pair::<ExtensionInstance>::new(metrics, index, policies);
        let controllers: Vec<Box<dyn KindController>> = vec![
            Box::new((helm_chart_proxies, helm_chart_proxy_ends)),
            Box::new((instances.clone(), instance_ends)),
        ];
        Self { controllers, instances }
    }

    pub fn queues(&self) -> Vec<Box<dyn PairQueues>> {
        self.controllers.iter().map(|kind| kind.queues()).collect()
    }

    pub fn caches(&self) -> Vec<Box<dyn PairCaches>> {
        self.controllers.iter().map(|kind| kind.caches()).collect()
    }

    /// Returns the kinds that the API server has to serve.
    pub fn resources(&self) -> Vec<ApiResource> {
        self.controllers.iter().flat_map(|kind| kind.resources()).collect()
    }
}
