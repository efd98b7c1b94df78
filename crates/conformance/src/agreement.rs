//! An operation's result, Observe, the declared records and, for tools with Helm's records, the helm CLI must agree.

use chandler_tool::generated::tool::{ReleaseState, ReleaseStatus};

use super::{Ability, CaseError, context::Context, records::Record, request};

impl Context {
    /// Checks that everything shows this state of a release.
    pub async fn agree(&self, state: &ReleaseState) -> Result<(), CaseError> {
        let name = &state.release.clone().unwrap_or_default().name;
        let observed = self.observe_existing(name).await?;
        ensure!(
            &observed == state,
            "the operation reported\n  {state:?}\nand Observe returns\n  {observed:?}"
        );
        let records = self.records(name).await?;
        agree_with_records(state, &records)?;
        if self.profile.has(Ability::HelmRecords) {
            self.agree_with_helm(name, state, &records).await?;
        }
        Ok(())
    }

    /// Checks that nothing shows the release.
    pub async fn agree_absent(&self, name: &str) -> Result<(), CaseError> {
        let observed = self.observe(name).await?;
        ensure!(observed.is_none(), "Observe still returns {observed:?}");
        let records = self.records(name).await?;
        ensure!(records.is_empty(), "there are still the records {records:?}");
        if self.profile.has(Ability::HelmRecords) {
            let helm = self.helm();
            let (listed, history) = (helm.list(name).await?, helm.history(name).await?);
            ensure!(listed.is_none(), "`helm list` still shows {listed:?}");
            ensure!(history.is_none(), "`helm history` still shows {history:?}");
        }
        Ok(())
    }

    async fn agree_with_helm(
        &self,
        name: &str,
        state: &ReleaseState,
        records: &[Record],
    ) -> Result<(), CaseError> {
        let helm = self.helm();
        let (listed, history) = (helm.list(name).await?, helm.history(name).await?);
        let status = status_name(state.status());
        let chart = format!("{}-{}", state.package_name, state.package_version);
        ensure!(
            listed.as_ref().is_some_and(|listed| listed.revision == state.revision.to_string()
                && listed.status == status
                && listed.chart == chart),
            "reported was revision {} {status} of {chart}, `helm list` shows {listed:?}",
            state.revision
        );
        let history: Vec<_> =
            history.unwrap_or_default().into_iter().map(|past| (past.revision, past.status)).rev().collect();
        let recorded: Vec<_> =
            records.iter().map(|record| (record.revision, record.status.clone())).collect();
        ensure!(history == recorded, "`helm history` shows {history:?}, the records are {recorded:?}");
        let values = helm.values(name, state.revision).await?;
        let digest = self.values_digest(&values).await?;
        ensure!(
            digest == state.values_digest,
            "the digest of the values is {}, that of `helm get values` is {digest}",
            state.values_digest
        );
        Ok(())
    }

    /// Returns the digest of values as `helm get values` prints them: `null` if there are none.
    async fn values_digest(&self, values: &str) -> Result<String, CaseError> {
        let values = if values.trim() == "null" { "{}" } else { values };
        match self.tool.canonicalize(vec![request::json(values)]).await? {
            Ok(canonical) => Ok(canonical.digest),
            Err(failure) => {
                Err(CaseError::Violation(format!("Canonicalize rejects {values}: {}", failure.message)))
            }
        }
    }
}

/// Checks that the newest record shows this state.
fn agree_with_records(state: &ReleaseState, records: &[Record]) -> Result<(), CaseError> {
    let (revision, status) = (state.revision, status_name(state.status()));
    let Some(newest) = records.first() else {
        return Err(CaseError::Violation(format!(
            "reported was revision {revision} {status}, and it has no record"
        )));
    };
    ensure!(
        newest.revision == revision && newest.status == status,
        "reported was revision {revision} {status}, the newest record is {newest:?}"
    );
    ensure!(
        newest.input_digest() == state.input_digest,
        "reported was the input digest {:?}, the newest record is {newest:?}",
        state.input_digest
    );
    ensure!(
        newest.rolled_back_digest() == state.rolled_back_digest,
        "reported was a rollback of {:?}, the newest record is {newest:?}",
        state.rolled_back_digest
    );
    let deployed = records.iter().filter(|record| record.status == "deployed").count();
    ensure!(deployed <= 1, "{deployed} revisions are deployed: {records:?}");
    Ok(())
}

/// Returns the status as records show it.
pub fn status_name(status: ReleaseStatus) -> String {
    let name = status.as_str_name().trim_start_matches("RELEASE_STATUS_");
    name.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use chandler_core::digest::InputMark;

    use super::*;
    use crate::records::STATUSES;

    fn record(revision: u32, status: &str, mark: &str) -> Record {
        Record {
            object: String::new(),
            revision,
            status: status.to_owned(),
            mark: InputMark::parse(mark),
            rolled_back: None,
            updated: None,
        }
    }

    #[test]
    fn every_status_has_its_label() {
        let all = (1..9).map(|number| status_name(ReleaseStatus::try_from(number).unwrap()));
        assert_eq!(all.collect::<Vec<_>>().len(), STATUSES.len());
        for number in 1..9 {
            let name = status_name(ReleaseStatus::try_from(number).unwrap());
            assert!(STATUSES.contains(&&*name), "{name}");
        }
    }

    #[test]
    fn the_newest_record_must_show_the_state() {
        let digest = "a".repeat(40);
        let mark = format!("{digest}.2");
        let state = ReleaseState {
            revision: 2,
            status: ReleaseStatus::Deployed.into(),
            input_digest: digest,
            ..ReleaseState::default()
        };
        let good = [record(2, "deployed", &mark), record(1, "superseded", "")];
        assert!(agree_with_records(&state, &good).is_ok());
        for wrong in [
            vec![],
            vec![record(1, "deployed", &mark)],
            vec![record(2, "failed", &mark)],
            vec![record(2, "deployed", "")],
            vec![record(2, "deployed", &mark), record(1, "deployed", "")],
        ] {
            assert!(agree_with_records(&state, &wrong).is_err(), "{wrong:?}");
        }
    }
}
