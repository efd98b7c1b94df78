//! The phases of the GitOps benchmark.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chandler_api::extensions::{AddonRelease, ExtensionInstance, Source};
use chandler_sandbox::{
    crds::wait_served, git_server::GitServer, process::Child, progress::ProgressReporter,
};
use futures::future::try_join;
use kube::api::ApiResource;
use tokio::time::Instant;

use super::{
    GitopsSize,
    addon::{self, Addon},
    figures::{Change, Figures},
    large_repository::LargeRepository,
    sources::{self, FetchedSources, SourceGroup, lists_of_refs},
};
use crate::{
    controller::{Controller, with_log},
    environment::{Environment, NAMESPACE},
    meter::{Cpu, Meter, RunningPhase},
    numbers::seconds,
    releases::{Key, ReleaseKind, Releases, keys},
};

/// The manager gives up a fetch after five minutes.
const FETCH_TIMEOUT: Duration = Duration::from_mins(6);
const FETCH_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Short, because the delay between a webhook and a poll is.
const SERVER_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The groups of Sources.
const LARGE: &str = "large";
const SHARED: &str = "shared";

pub struct Run<'a> {
    environment: &'a Environment,
    controller: &'a Controller,
    size: GitopsSize,
    progress: &'a dyn ProgressReporter,
    server: GitServer,
    meter: Meter<'a>,
    manager: Option<Child>,
    releases: Releases,
    /// The releases of the add-on.
    keys: Vec<Key>,
    figures: Figures,
}

impl<'a> Run<'a> {
    /// Starts the Git server and the manager.
    pub async fn start(
        environment: &'a Environment,
        controller: &'a Controller,
        size: GitopsSize,
        progress: &'a dyn ProgressReporter,
    ) -> Result<Self> {
        let client = environment.client();
        let kinds = [
            ApiResource::erase::<Source>(&()),
            ApiResource::erase::<ExtensionInstance>(&()),
            ApiResource::erase::<AddonRelease>(&()),
        ];
        for kind in &kinds {
            wait_served(client, kind).await?;
        }
        let server = GitServer::start(environment.authority(), &environment.dir().join("git/served")).await?;
        let mut meter = Meter::new(environment, Cpu::ProcessTree, controller.label());
        controller.prepare_access(environment).await?;
        let manager = meter.start(controller).await?;
        let figures = Figures {
            clusters: size.clusters,
            files: size.files,
            history_mb: size.history_mb,
            sources: size.sources,
            interval_s: seconds(size.interval),
            intervals: size.intervals,
            ..Figures::default()
        };
        Ok(Self {
            releases: Releases::watch(client.clone(), NAMESPACE, ReleaseKind::AddonRelease),
            keys: keys(&[addon::NAME.to_owned()], environment.workloads()),
            manager: Some(manager),
            environment,
            controller,
            size,
            progress,
            server,
            meter,
            figures,
        })
    }

    /// `receiver` is the address at which the manager receives webhooks.
    pub async fn run(mut self, receiver: &str) -> Result<Figures> {
        let result = self.run_phases(receiver).await;
        self.stop().await;
        with_log(self.environment, result)?;
        Ok(self.figures)
    }

    async fn stop(&mut self) {
        if let Some(manager) = self.manager.take() {
            self.meter.stop(manager).await;
        }
    }

    async fn run_phases(&mut self, receiver: &str) -> Result<()> {
        let mut addon = Addon::create(self.environment, &self.server, receiver).await?;
        self.install(&mut addon).await?;
        for round in 1..=self.size.rounds {
            self.push(&mut addon, round).await?;
            self.apply(&mut addon, round).await?;
        }
        self.figures.compare_changes();
        self.large_repository().await?;
        self.shared_polls().await
    }

    async fn install(&mut self, addon: &mut Addon<'_>) -> Result<()> {
        let phase = self.begin("install")?;
        addon.install().await?;
        self.wait_ready(addon).await?;
        self.end(phase, Duration::ZERO).await
    }

    /// Changes the add-on by a push. The push itself is not measured, only what follows.
    async fn push(&mut self, addon: &mut Addon<'_>, round: u32) -> Result<()> {
        addon.push(round).await?;
        let lists = lists_of_refs(&self.server);
        let phase = self.begin("push")?;
        let started = Instant::now();
        addon.send_webhook().await?;
        let polled = async {
            self.wait_listed(lists).await;
            Ok::<_, anyhow::Error>(started.elapsed())
        };
        let (delay, ()) = try_join(polled, self.wait_ready(addon)).await?;
        self.end(phase, delay).await
    }

    async fn apply(&mut self, addon: &mut Addon<'_>, round: u32) -> Result<()> {
        let phase = self.begin("apply")?;
        addon.apply(round).await?;
        self.wait_ready(addon).await?;
        self.end(phase, Duration::ZERO).await
    }

    /// The manager restarts before, so that the memory that earlier phases have needed does not hide that of the fetch.
    async fn large_repository(&mut self) -> Result<()> {
        let GitopsSize { files, history_mb, .. } = self.size;
        self.progress.begin("generating the large repository", None);
        let on_progress =
            |megabytes: u64| self.progress.advance(&format!("{megabytes} of {history_mb} MB are written"));
        let repository = LargeRepository::new(files, history_mb);
        let commit = repository.create(&self.server, LARGE, on_progress).await?;
        self.progress.finish("generating the large repository");

        self.progress.begin("restarting the manager", None);
        self.stop().await;
        self.manager = Some(self.meter.start(self.controller).await?);
        self.progress.finish("restarting the manager");

        self.progress.begin("fetching the large repository", None);
        let before = self.meter.processes.resident_roots();
        let started = Instant::now();
        let url = self.server.url(LARGE);
        let group = SourceGroup { name: LARGE, url: &url, interval: "24h" };
        sources::apply_group(self.environment.client(), group, 1).await?;
        self.wait_fetched(LARGE, 1, &commit).await?;
        self.figures.fetch_s = seconds(started.elapsed());
        self.figures.set_memory(before, self.meter.processes.high_water_roots());
        self.progress.finish("fetching the large repository");
        Ok(())
    }

    /// Counts the polls of many Sources of one repository. No other Source is polled meanwhile.
    async fn shared_polls(&mut self) -> Result<()> {
        let GitopsSize { sources: count, interval, intervals, .. } = self.size;
        let tree = self.server.create(SHARED).await?;
        let commit = tree.commit("Add a file", &[("a.yaml", "a: 1\n")]).await?;
        let step = format!("creating {count} Sources of one repository");
        self.progress.begin(&step, None);
        let (url, period) = (self.server.url(SHARED), format!("{}s", interval.as_secs()));
        let group = SourceGroup { name: SHARED, url: &url, interval: &period };
        sources::apply_group(self.environment.client(), group, count).await?;
        self.wait_fetched(SHARED, count, &commit).await?;
        self.progress.finish(&step);

        // The count starts and ends in the middle of an interval, far from polls.
        self.progress.begin("polls", None);
        let listed = self.wait_listed(lists_of_refs(&self.server));
        tokio::time::timeout(interval * 3, listed).await.context("the Sources are not polled")?;
        tokio::time::sleep(interval / 2).await;
        let before = lists_of_refs(&self.server);
        let phase = self.meter.begin("polls")?;
        tokio::time::sleep(interval * intervals).await;
        self.figures.set_lists_of_refs(lists_of_refs(&self.server) - before);
        self.figures.polls = self.meter.finish_now(&phase, 0)?;
        self.progress.finish("polls");
        self.check()
    }

    /// Waits until the releases of the add-on are Ready in its desired state.
    async fn wait_ready(&self, addon: &Addon<'_>) -> Result<()> {
        self.releases.wait_done(self.manager.as_ref(), &addon.desired(&self.keys)).await
    }

    /// Waits until refs were listed more often than `before`.
    async fn wait_listed(&self, before: u64) {
        while lists_of_refs(&self.server) <= before {
            tokio::time::sleep(SERVER_POLL_INTERVAL).await;
        }
    }

    /// Waits until so many Sources of a group are Ready at a commit.
    async fn wait_fetched(&self, group: &str, count: u32, commit: &str) -> Result<()> {
        let deadline = Instant::now() + FETCH_TIMEOUT;
        loop {
            self.check()?;
            let FetchedSources { count: fetched, failure } =
                sources::fetched(self.environment.client(), group, commit).await?;
            if fetched == count {
                return Ok(());
            }
            let state = format!("{fetched} of {count} Sources are Ready");
            ensure!(Instant::now() < deadline, "{state}; {}", failure.unwrap_or_default());
            self.progress.advance(&state);
            tokio::time::sleep(FETCH_POLL_INTERVAL).await;
        }
    }

    fn check(&self) -> Result<()> {
        self.manager.as_ref().map_or(Ok(()), Child::check)?;
        Ok(())
    }

    fn begin(&mut self, name: &'static str) -> Result<RunningPhase> {
        self.progress.begin(name, None);
        self.meter.begin(name)
    }

    /// Ends a phase whose releases are Ready.
    async fn end(&mut self, phase: RunningPhase, delay: Duration) -> Result<()> {
        let phase = self.meter.finish(phase, self.keys.len()).await?;
        self.progress.finish(&phase.name);
        self.figures.changes.push(Change { delay_s: seconds(delay), phase });
        Ok(())
    }
}
