//! Converts between Chandler's types and the contract's messages.

use std::time::Duration;

use chandler_api::{
    extensions::{CrdsPolicy, FieldConflicts, KindPattern},
    status::ObjectRecord,
};
use chandler_core::{
    digest::{Digest, InputDigest},
    failure::{Category, Failure},
    identity::ReleaseId,
    inventory::{ReleaseRecords, ReleaseStatus},
    release::{ApplyKind, ExecutionOptions, RenderingOptions, ValuesReuse},
    target::{Target, TargetAuth, TargetProxy},
    tenancy::ObjectRule,
};

use crate::{
    client::{Applied, ReleaseDetails, StepReport},
    generated::tool as proto,
    order::{ApplyOrder, PackageFile, RemoveOrder, RollbackOrder},
};

pub fn apply(order: ApplyOrder) -> proto::ApplyRequest {
    let ApplyOrder {
        operation_id,
        target: to,
        release: id,
        package: file,
        values: text,
        kind,
        inputs,
        rendering,
        execution,
    } = order;
    proto::ApplyRequest {
        operation_id,
        target: Some(target(&to)),
        release: Some(release(&id)),
        package: Some(package(&file)),
        values: vec![values(&text)],
        action: match kind {
            ApplyKind::Install => proto::ApplyAction::Install,
            ApplyKind::Upgrade | ApplyKind::Recover => proto::ApplyAction::Upgrade,
        }
        .into(),
        options: Some(apply_options(&rendering, &execution)),
        input_digest: inputs.to_string(),
        recover: kind == ApplyKind::Recover,
    }
}

/// Returns the options of an install or upgrade.
pub fn apply_options(rendering: &RenderingOptions, execution: &ExecutionOptions) -> proto::ApplyOptions {
    proto::ApplyOptions {
        create_namespace: execution.create_namespace,
        wait: execution.wait,
        wait_for_jobs: execution.wait_for_jobs,
        atomic: execution.atomic,
        disable_hooks: rendering.disable_hooks,
        crds: crd_policy(execution.crds).into(),
        take_ownership: execution.take_ownership,
        method: proto::ApplyMethod::PreferServerSide.into(),
        force_conflicts: false,
        force_replace: false,
        force: execution.force,
        max_history: execution.max_history,
        cleanup_on_fail: execution.cleanup_on_fail,
        values_reuse: values_reuse(rendering.values_reuse).into(),
        sub_notes: rendering.sub_notes,
        skip_schema_validation: false,
        timeout: duration(execution.timeout),
        description: String::new(),
        field_conflicts: field_conflicts(execution.conflicts).into(),
        replace_unsafe_crds: execution.replace_unsafe_crds,
    }
}

pub fn rollback(order: RollbackOrder) -> proto::RollbackRequest {
    let RollbackOrder {
        operation_id,
        target: to,
        release: id,
        revision,
        inputs,
        rolled_back,
        roll_back_deployed,
        rendering,
        execution,
    } = order;
    proto::RollbackRequest {
        operation_id,
        target: Some(target(&to)),
        release: Some(release(&id)),
        revision,
        options: Some(proto::RollbackOptions {
            wait: execution.wait,
            wait_for_jobs: execution.wait_for_jobs,
            disable_hooks: rendering.disable_hooks,
            max_history: execution.max_history,
            timeout: duration(execution.timeout),
            field_conflicts: field_conflicts(execution.conflicts).into(),
            force: execution.force,
        }),
        input_digest: inputs.to_string(),
        rolled_back_digest: rolled_back.to_string(),
        // A revision is rolled back after it has failed or was interrupted.
        recover: true,
        roll_back_deployed,
    }
}

pub fn remove(order: RemoveOrder) -> proto::RemoveRequest {
    let RemoveOrder { operation_id, target: from, release: id, rendering, execution } = order;
    proto::RemoveRequest {
        operation_id,
        target: Some(target(&from)),
        release: Some(release(&id)),
        options: Some(proto::RemoveOptions {
            keep_history: execution.keep_history,
            disable_hooks: rendering.disable_hooks,
            wait: execution.wait,
            timeout: duration(execution.timeout),
            description: execution.removal_description,
        }),
    }
}

pub fn package(package: &PackageFile) -> proto::Package {
    proto::Package {
        path: package.path.to_string_lossy().into_owned(),
        digest: package.digest.to_string(),
        format: package.format.to_string(),
    }
}

pub fn values(text: &str) -> proto::Values {
    proto::Values { content: Some(proto::values::Content::Text(text.to_owned())) }
}

pub fn release(release: &ReleaseId) -> proto::Release {
    proto::Release { name: release.name.clone(), namespace: release.namespace.clone() }
}

pub fn target(target: &Target) -> proto::Target {
    let tls = &target.tls;
    proto::Target {
        cluster: target.cluster.to_string(),
        server: target.server.clone(),
        tls: Some(proto::Tls {
            ca_pem: tls.ca_pem.clone().unwrap_or_default(),
            server_name: tls.server_name.clone().unwrap_or_default(),
            insecure_skip_verify: tls.insecure_skip_verify,
            client_certificate_pem: tls.client_certificate_pem.clone().unwrap_or_default(),
            client_key_pem: tls.client_key_pem.clone().unwrap_or_default(),
        }),
        auth: target.auth.as_ref().map(|auth| proto::Auth {
            method: Some(match auth {
                TargetAuth::BearerToken(token) => proto::auth::Method::BearerToken(token.clone()),
                TargetAuth::Basic { username, password } => proto::auth::Method::Basic(proto::BasicAuth {
                    username: username.clone(),
                    password: password.clone(),
                }),
            }),
        }),
        impersonate: target.boundary.account.as_ref().map(|account| proto::Impersonate {
            user: account.user(),
            // The API server adds those of the ServiceAccount.
            groups: Vec::new(),
        }),
        request_timeout: duration(target.request_timeout),
        proxy: target.proxy.as_ref().map(proxy),
        object_rules: target.boundary.rules.iter().map(object_rule).collect(),
    }
}

fn object_rule(rule: &ObjectRule) -> proto::ObjectRule {
    let patterns = |kinds: &[KindPattern]| {
        let pattern =
            |kind: &KindPattern| proto::KindPattern { group: kind.group.clone(), kind: kind.kind.clone() };
        kinds.iter().map(pattern).collect()
    };
    proto::ObjectRule {
        name: rule.name.clone(),
        cluster_scoped_kinds: patterns(&rule.cluster_scoped),
        denied_kinds: patterns(&rule.denied),
        any_namespace: rule.namespaces.is_none(),
        namespaces: rule.namespaces.clone().unwrap_or_default(),
    }
}

/// Returns `None` if the result is not that of an Apply.
pub fn applied(result: proto::OperationResult) -> Option<Applied> {
    match result.outcome? {
        proto::operation_result::Outcome::State(state) => Some(Applied {
            details: details(state),
            unchanged: result.unchanged,
            ignored_fields: result.ignored_fields,
        }),
        _ => None,
    }
}

fn proxy(proxy: &TargetProxy) -> proto::Proxy {
    let auth = proxy.credentials.clone().map(|(username, password)| proto::BasicAuth { username, password });
    proto::Proxy { url: proxy.url.clone(), auth }
}

pub fn details(state: proto::ReleaseState) -> ReleaseDetails {
    ReleaseDetails {
        revision: state.revision,
        status: status(state.status()),
        package_name: state.package_name,
        package_version: state.package_version,
        values: Digest::parse(&state.values_digest),
        inputs: InputDigest::parse(&state.input_digest),
        rolled_back: InputDigest::parse(&state.rolled_back_digest),
        inventory: state.inventory.into_iter().map(object).collect(),
        description: state.description,
    }
}

pub fn records(records: proto::ReleaseRecords) -> ReleaseRecords {
    ReleaseRecords {
        api_version: records.api_version,
        kind: records.kind,
        plural: records.plural,
        label_selector: records.label_selector,
        object_name: records.object_name,
        release_label: records.release_label,
        revision_label: records.revision_label,
        status_label: records.status_label,
        time_labels: records.time_labels,
        object_selector: records.object_label_selector,
    }
}

pub fn step(step: proto::Step) -> StepReport {
    let waiting = step.kind() == proto::StepKind::Waiting;
    StepReport { message: step.message, waiting }
}

pub fn failure(failure: &proto::Failure) -> Failure {
    use proto::FailureCategory as F;
    let category = match failure.category() {
        F::InvalidPackage => Category::InvalidPackage,
        F::InvalidValues => Category::InvalidValues,
        F::Conflict => Category::Conflict,
        F::Unreachable => Category::Unreachable,
        F::Unauthorized => Category::Unauthorized,
        F::Forbidden => Category::Forbidden,
        F::Timeout => Category::Timeout,
        F::HookFailed => Category::HookFailed,
        F::NotReady => Category::NotReady,
        F::Cancelled => Category::Cancelled,
        F::Rejected => Category::Rejected,
        F::NotAllowed => Category::NotAllowed,
        F::Internal | F::Unspecified => Category::Internal,
    };
    Failure::new(category, failure.message.clone())
}

pub fn object(object: proto::ObjectRef) -> ObjectRecord {
    ObjectRecord {
        api_version: object.api_version,
        kind: object.kind,
        namespace: object.namespace,
        name: object.name,
    }
}

pub fn object_ref(object: ObjectRecord) -> proto::ObjectRef {
    proto::ObjectRef {
        api_version: object.api_version,
        kind: object.kind,
        namespace: object.namespace,
        name: object.name,
    }
}

fn status(status: proto::ReleaseStatus) -> ReleaseStatus {
    use proto::ReleaseStatus as S;
    match status {
        S::Unspecified => ReleaseStatus::Unknown,
        S::Deployed => ReleaseStatus::Deployed,
        S::Failed => ReleaseStatus::Failed,
        S::Superseded => ReleaseStatus::Superseded,
        S::Uninstalled => ReleaseStatus::Uninstalled,
        S::Uninstalling => ReleaseStatus::Uninstalling,
        S::PendingInstall => ReleaseStatus::PendingInstall,
        S::PendingUpgrade => ReleaseStatus::PendingUpgrade,
        S::PendingRollback => ReleaseStatus::PendingRollback,
    }
}

fn crd_policy(policy: CrdsPolicy) -> proto::CrdPolicy {
    match policy {
        CrdsPolicy::Skip => proto::CrdPolicy::Skip,
        CrdsPolicy::Create => proto::CrdPolicy::Unspecified,
        CrdsPolicy::CreateReplace => proto::CrdPolicy::CreateReplace,
    }
}

pub fn field_conflicts(conflicts: FieldConflicts) -> proto::FieldConflicts {
    match conflicts {
        FieldConflicts::Fail => proto::FieldConflicts::Fail,
        FieldConflicts::Force => proto::FieldConflicts::Force,
        FieldConflicts::IgnoreFields => proto::FieldConflicts::IgnoreFields,
    }
}

fn values_reuse(reuse: ValuesReuse) -> proto::ValuesReuse {
    match reuse {
        ValuesReuse::Reset => proto::ValuesReuse::Unspecified,
        ValuesReuse::Reuse => proto::ValuesReuse::Reuse,
        ValuesReuse::ResetThenReuse => proto::ValuesReuse::ResetThenReuse,
    }
}

/// Returns `None`, which means no limit, if the duration is too long for the message.
pub fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_account_and_the_rules_of_its_boundary() {
        use chandler_core::{
            identity::ClusterKey,
            target::TargetTls,
            tenancy::{Boundary, WorkloadAccount},
        };
        let rule = |namespaces| ObjectRule {
            name: "AddonTenancy team".to_owned(),
            cluster_scoped: vec![KindPattern { group: "example.com".to_owned(), kind: "*".to_owned() }],
            denied: Vec::new(),
            namespaces,
        };
        let mut to = Target {
            cluster: ClusterKey::new("fleet", "blue"),
            server: "https://blue.example".to_owned(),
            tls: TargetTls::default(),
            auth: None,
            proxy: None,
            request_timeout: Duration::from_secs(30),
            boundary: Boundary::default(),
        };
        let free = target(&to);
        assert!(free.impersonate.is_none() && free.object_rules.is_empty());
        let account = WorkloadAccount { namespace: "team".to_owned(), name: "deployer".to_owned() };
        to.boundary =
            Boundary { account: Some(account), rules: vec![rule(None), rule(Some(vec!["team".to_owned()]))] };
        let bound = target(&to);
        assert_eq!(bound.impersonate.unwrap().user, "system:serviceaccount:team:deployer");
        let [any, listed] = &bound.object_rules[..] else { panic!("{:?}", bound.object_rules) };
        assert!(any.any_namespace && any.namespaces.is_empty());
        assert!(!listed.any_namespace && listed.namespaces == ["team"]);
        assert_eq!(listed.cluster_scoped_kinds[0].group, "example.com");
    }

    #[test]
    fn a_result_without_a_release_is_not_that_of_an_apply() {
        use proto::operation_result::Outcome;
        let ignored = vec![".spec.replicas of Deployment shop/web".to_owned()];
        let result =
            |outcome| proto::OperationResult { outcome, unchanged: true, ignored_fields: ignored.clone() };
        let applied = applied(result(Some(Outcome::State(proto::ReleaseState::default())))).unwrap();
        assert!(applied.unchanged);
        assert_eq!(applied.ignored_fields, ignored);
        for outcome in [None, Some(Outcome::Absent(proto::ReleaseAbsent {}))] {
            assert_eq!(super::applied(result(outcome)), None);
        }
    }
}
