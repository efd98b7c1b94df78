//! Reads the audit log of an API server.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The audit log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the audit log {}: {source}", path.display())]
pub struct ReadAuditLog {
    path: PathBuf,
    source: io::Error,
}

/// A request that the API server has completed, or a watch that it has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub uri: String,
    pub user: String,
    /// The user that the request impersonates, if any.
    pub impersonated: Option<String>,
    pub user_agent: String,
    /// The IP address that the request came from, or empty if there is none.
    pub source_ip: String,
    /// The HTTP status code, or 0 if there is none.
    pub code: u16,
    pub received: jiff::Timestamp,
}

impl AuditEntry {
    /// Returns whether a Chandler manager or its driver sent the request.
    pub fn is_from_chandler(&self) -> bool {
        self.user_agent.starts_with("chandler") && self.user_agent != "chandler-sandbox"
    }

    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }
}

/// A reader of an API server's audit log.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
    /// The audit IDs of started watches, which are logged again when they end.
    watches: BTreeSet<String>,
}

impl AuditLog {
    /// Returns a reader that starts at the current end of the log.
    pub(crate) fn at_end(path: &Path) -> Self {
        let offset = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        Self { path: path.to_owned(), offset, watches: BTreeSet::new() }
    }

    /// Returns every request that was logged since the last call, each once.
    pub fn read(&mut self) -> Result<Vec<AuditEntry>, ReadAuditLog> {
        let text = self.read_new().map_err(|source| ReadAuditLog { path: self.path.clone(), source })?;
        let mut entries = Vec::new();
        for line in text.lines() {
            // Skipping an invalid line would hide a request.
            let event: Event = serde_json::from_str(line)
                .map_err(|error| ReadAuditLog { path: self.path.clone(), source: error.into() })?;
            if event.stage == "ResponseStarted" {
                self.watches.insert(event.audit_id.clone());
            } else if self.watches.remove(&event.audit_id) {
                continue;
            }
            entries.push(event.into());
        }
        Ok(entries)
    }

    /// Returns verb, resource and name of every write of Chandler that was logged since the last call.
    pub fn chandler_writes(&mut self) -> Result<Vec<(String, String, String)>, ReadAuditLog> {
        let writes = self.read()?.into_iter().filter(|entry| entry.is_from_chandler() && entry.is_write());
        Ok(writes.map(|entry| (entry.verb, entry.resource, entry.name)).collect())
    }

    fn read_new(&mut self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        if file.metadata()?.len() < self.offset {
            // The API server has rotated the log.
            self.offset = 0;
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be incomplete.
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(complete);
        self.offset += u64::try_from(complete).unwrap_or(0);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    user_agent: String,
    #[serde(default, rename = "sourceIPs")]
    source_ips: Vec<String>,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: jiff::Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Event> for AuditEntry {
    fn from(event: Event) -> Self {
        Self {
            verb: event.verb,
            group: event.object_ref.api_group,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            uri: event.request_uri,
            user: event.user.username,
            impersonated: event.impersonated_user.map(|user| user.username),
            user_agent: event.user_agent,
            source_ip: event.source_ips.into_iter().next().unwrap_or_default(),
            code: event.response_status.code,
            received: event.request_received_timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, stage: &str, verb: &str) -> String {
        format!(
            r#"{{"auditID":"{id}","stage":"{stage}","verb":"{verb}","requestURI":"/api/v1/pods","user":{{"username":"u"}},"userAgent":"a","objectRef":{{"resource":"pods"}},"responseStatus":{{"code":200}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}}"#
        )
    }

    #[test]
    fn each_request_is_returned_once_and_only_when_its_line_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        std::fs::write(&path, line("old", "ResponseComplete", "get") + "\n").unwrap();
        let mut log = AuditLog::at_end(&path);
        assert_eq!(log.read().unwrap(), []);

        let old = std::fs::read_to_string(&path).unwrap();
        let started = old + &line("w", "ResponseStarted", "watch") + "\n";
        std::fs::write(&path, started.clone() + "{\"auditID\"").unwrap();
        let verbs: Vec<_> = log.read().unwrap().into_iter().map(|entry| entry.verb).collect();
        assert_eq!(verbs, ["watch"]);

        let ended = started
            + &line("w", "ResponseComplete", "watch")
            + "\n"
            + &line("g", "ResponseComplete", "get")
            + "\n";
        std::fs::write(&path, ended).unwrap();
        let verbs: Vec<_> = log.read().unwrap().into_iter().map(|entry| entry.verb).collect();
        assert_eq!(verbs, ["get"]);
    }

    #[test]
    fn missing_and_invalid_logs_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        AuditLog::at_end(&path).read().unwrap_err();
        std::fs::write(&path, "").unwrap();
        let mut log = AuditLog::at_end(&path);
        std::fs::write(&path, "{\"auditID\": 7}\n").unwrap();
        log.read().unwrap_err();
    }
}
