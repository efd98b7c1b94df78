//! Installs, upgrades, observes and removes a release.

use std::time::Duration;

use chandler_tool::generated::tool::{
    ApplyAction, ApplyOptions, ApplyRequest, Release, ReleaseState, ReleaseStatus, RemoveOptions, StepKind,
    ValuesReuse,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use tokio::time::timeout;

use crate::{
    cluster::Cluster,
    failure::{Category, Failure},
    objects::{Objects, Reference},
    operation::Steps,
    package::Package,
    records::{Content, Record, Records, now},
    values,
};

const TIMEOUT: Duration = Duration::from_mins(10);

/// Checks that a request names a release, in a way that a record can be named after.
pub fn checked(release: Option<Release>) -> Result<Release, Failure> {
    let release = release.unwrap_or_default();
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let name = release.name.as_bytes();
    let valid = (1..=53).contains(&name.len())
        && name.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
        && alphanumeric(name[0])
        && alphanumeric(name[name.len() - 1]);
    if valid && !release.namespace.is_empty() {
        return Ok(release);
    }
    Err(Failure::new(Category::InvalidValues, "the request has no valid release name and namespace"))
}

/// Returns the release with up to `history` revisions, or `None` if it does not exist.
pub async fn observe(
    cluster: &Cluster,
    release: &Release,
    history: u32,
) -> Result<Option<ReleaseState>, Failure> {
    let records = Records::new(cluster, release).list().await?;
    let limit = usize::try_from(history).unwrap_or(usize::MAX);
    Ok(records.first().map(|newest| ReleaseState {
        history: records.iter().take(limit).map(Record::past).collect(),
        ..newest.state(release)
    }))
}

/// The result of an install or upgrade.
pub struct Applied {
    pub state: ReleaseState,
    /// The newest revision was deployed with these inputs before.
    pub unchanged: bool,
}

/// Installs or upgrades a release, unless its newest revision is deployed with the same inputs.
pub async fn apply(
    cluster: &Cluster,
    release: &Release,
    request: ApplyRequest,
    steps: &Steps,
) -> Result<Applied, Failure> {
    let given = values::read(&request.values)?;
    let texts = values::texts(&given);
    let options = request.options.clone().unwrap_or_default();
    if options.values_reuse() != ValuesReuse::Unspecified {
        let message = "the tool does not store values: an upgrade cannot reuse those of the last revision";
        return Err(Failure::new(Category::InvalidValues, message));
    }
    let package = Package::read(request.package.clone())?;
    let limit = options.timeout.and_then(|limit| limit.try_into().ok()).unwrap_or(TIMEOUT);
    let (records, objects) = (Records::new(cluster, release), Objects::new(cluster, release));
    let mut apply = Apply { release, steps, request, options, package, records, objects, created: None };
    let result = match timeout(limit, apply.run(cluster, given)).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new(Category::Timeout, format!("the operation took longer than {limit:?}"))),
    };
    match result {
        Ok(applied) => Ok(applied),
        Err(failure) => Err(apply.fail(failure.without(&texts)).await),
    }
}

struct Apply<'a> {
    release: &'a Release,
    steps: &'a Steps,
    request: ApplyRequest,
    options: ApplyOptions,
    package: Package,
    records: Records<'a>,
    objects: Objects<'a>,
    /// The revision that the operation has created.
    created: Option<Record>,
}

impl Apply<'_> {
    async fn run(
        &mut self,
        cluster: &Cluster,
        given: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Applied, Failure> {
        let rendered = self.package.render(&self.release.name, &given)?;
        let mut past = self.records.list().await?;
        self.steps.send(StepKind::Fetched, "read the release's records").await;
        if let Some(deployed) = past.first().filter(|last| self.is_deployed(last)) {
            return Ok(Applied { state: deployed.state(self.release), unchanged: true });
        }
        self.check_action(past.first())?;
        self.recover(&mut past).await?;
        if self.options.create_namespace {
            create_namespace(cluster, &self.release.namespace).await?;
        }
        let mut objects = Vec::new();
        for object in rendered {
            objects.push(self.objects.prepare(object).await?);
        }
        if !self.options.take_ownership {
            for object in &objects {
                self.objects.check_owner(object).await?;
            }
        }
        let inventory: Vec<_> = objects.iter().map(|object| object.reference.clone()).collect();
        let mut record = self.new_record(&past, values::canonical_message(given).digest, inventory);
        self.records.create(&mut record).await?;
        self.created = Some(record.clone());
        self.steps.send(StepKind::Applying, &format!("applying {} objects", objects.len())).await;
        let force = self.options.force || self.options.force_conflicts;
        for object in &objects {
            self.objects.apply(object, force).await?;
        }
        self.prune(&past, &record.content.objects).await?;
        for old in past.iter_mut().filter(|old| old.status == ReleaseStatus::Deployed) {
            old.status = ReleaseStatus::Superseded;
            self.records.save(old).await?;
        }
        record.content.last_deployed = now();
        record.set(ReleaseStatus::Deployed, "complete");
        self.records.save(&mut record).await?;
        self.created = Some(record.clone());
        self.trim(&past).await?;
        Ok(Applied { state: record.state(self.release), unchanged: false })
    }

    /// Returns whether the requested inputs are deployed with this revision.
    fn is_deployed(&self, last: &Record) -> bool {
        let digest = &self.request.input_digest;
        last.status == ReleaseStatus::Deployed && !digest.is_empty() && last.input_digest == *digest
    }

    /// Fails with CONFLICT if the release is not in the state that the action requires.
    fn check_action(&self, last: Option<&Record>) -> Result<(), Failure> {
        let conflict = |message: &str| Err(Failure::new(Category::Conflict, message));
        let exists = last.is_some_and(|last| last.status != ReleaseStatus::Uninstalled);
        match (self.request.action(), last) {
            (ApplyAction::Unspecified, _) => {
                Err(Failure::new(Category::Internal, "the request is neither an install nor an upgrade"))
            }
            (_, Some(last)) if last.is_pending() || last.status == ReleaseStatus::Uninstalling => {
                if self.request.recover {
                    Ok(())
                } else {
                    conflict("another operation on the release runs, or was interrupted")
                }
            }
            (ApplyAction::Install, _) if exists => conflict("the release exists"),
            (ApplyAction::Upgrade, _) if !exists => conflict("the release does not exist"),
            _ => Ok(()),
        }
    }

    /// Marks an interrupted revision as failed, or completes an interrupted removal.
    async fn recover(&mut self, past: &mut Vec<Record>) -> Result<(), Failure> {
        let Some(last) = past.first_mut() else { return Ok(()) };
        if last.is_pending() {
            last.set(ReleaseStatus::Failed, "interrupted");
            self.records.save(last).await?;
        } else if last.status == ReleaseStatus::Uninstalling {
            self.steps.send(StepKind::Removing, "completing an interrupted removal").await;
            delete_all(&self.records, &mut self.objects, past).await?;
            past.clear();
        }
        Ok(())
    }

    fn new_record(&self, past: &[Record], values_digest: String, objects: Vec<Reference>) -> Record {
        let upgrade = past.first().is_some_and(|last| last.status != ReleaseStatus::Uninstalled);
        Record {
            revision: past.first().map_or(0, |last| last.revision) + 1,
            status: if upgrade { ReleaseStatus::PendingUpgrade } else { ReleaseStatus::PendingInstall },
            input_digest: self.request.input_digest.clone(),
            version: None,
            content: Content {
                package_name: self.package.name.clone(),
                package_version: self.package.version.clone(),
                app_version: self.package.app_version.clone(),
                values_digest,
                description: "running".to_owned(),
                first_deployed: past.last().map_or_else(now, |first| first.content.first_deployed),
                last_deployed: now(),
                objects,
            },
        }
    }

    /// Deletes the objects of earlier revisions that the new one does not have.
    async fn prune(&mut self, past: &[Record], kept: &[Reference]) -> Result<(), Failure> {
        for object in all_objects(past) {
            if !kept.contains(object) {
                self.objects.delete(object).await?;
            }
        }
        Ok(())
    }

    /// Deletes the oldest records, if there are more than requested.
    async fn trim(&self, past: &[Record]) -> Result<(), Failure> {
        let Some(kept) = usize::try_from(self.options.max_history).ok().filter(|kept| *kept > 0) else {
            return Ok(());
        };
        for old in past.iter().skip(kept - 1) {
            self.records.delete(old).await?;
        }
        Ok(())
    }

    /// Records the failure, if the operation has created a revision and the cluster can still be reached.
    async fn fail(&mut self, failure: Failure) -> Failure {
        let Some(mut record) = self.created.take() else { return failure };
        record.set(ReleaseStatus::Failed, failure.message.clone());
        let state = self.records.save(&mut record).await.ok().map(|()| Box::new(record.state(self.release)));
        Failure { state, ..failure }
    }
}

/// Removes a release. Returns `None` if nothing of it is left.
pub async fn remove(
    cluster: &Cluster,
    release: &Release,
    options: RemoveOptions,
    steps: &Steps,
) -> Result<Option<ReleaseState>, Failure> {
    let limit = options.timeout.and_then(|limit| limit.try_into().ok()).unwrap_or(TIMEOUT);
    let removal = timeout(limit, remove_all(cluster, release, &options, steps)).await;
    removal.unwrap_or_else(|_| {
        Err(Failure::new(Category::Timeout, format!("the operation took longer than {limit:?}")))
    })
}

async fn remove_all(
    cluster: &Cluster,
    release: &Release,
    options: &RemoveOptions,
    steps: &Steps,
) -> Result<Option<ReleaseState>, Failure> {
    let (records, mut objects) = (Records::new(cluster, release), Objects::new(cluster, release));
    let mut past = records.list().await?;
    steps.send(StepKind::Fetched, "read the release's records").await;
    let Some(newest) = past.first_mut() else { return Ok(None) };
    if newest.status == ReleaseStatus::Uninstalled && options.keep_history {
        return Ok(Some(newest.state(release)));
    }
    newest.status = ReleaseStatus::Uninstalling;
    records.save(newest).await?;
    steps.send(StepKind::Removing, "deleting the release's objects").await;
    if !options.keep_history {
        delete_all(&records, &mut objects, &past).await?;
        return Ok(None);
    }
    delete_objects(&mut objects, &past).await?;
    let (newest, older) = past.split_at_mut(1);
    for old in older.iter_mut().filter(|old| old.status == ReleaseStatus::Deployed) {
        old.status = ReleaseStatus::Superseded;
        records.save(old).await?;
    }
    newest[0].set(ReleaseStatus::Uninstalled, "uninstalled");
    records.save(&mut newest[0]).await?;
    Ok(Some(newest[0].state(release)))
}

/// Deletes the objects, then the records. The newest record is last: until then the removal can be repeated.
async fn delete_all(
    records: &Records<'_>,
    objects: &mut Objects<'_>,
    past: &[Record],
) -> Result<(), Failure> {
    delete_objects(objects, past).await?;
    for record in past.iter().rev() {
        records.delete(record).await?;
    }
    Ok(())
}

async fn delete_objects(objects: &mut Objects<'_>, past: &[Record]) -> Result<(), Failure> {
    for object in all_objects(past) {
        objects.delete(object).await?;
    }
    Ok(())
}

/// Returns the objects of all revisions, each once.
fn all_objects(past: &[Record]) -> Vec<&Reference> {
    let mut all: Vec<&Reference> = Vec::new();
    for object in past.iter().flat_map(|record| &record.content.objects) {
        if !all.contains(&object) {
            all.push(object);
        }
    }
    all
}

async fn create_namespace(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    if cluster.request(namespaces.get_opt(name)).await?.is_some() {
        return Ok(());
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    match cluster.request(namespaces.create(&PostParams::default(), &namespace)).await {
        Err(failure) if failure.category == Category::Conflict => Ok(()),
        other => other.map(drop),
    }
}
