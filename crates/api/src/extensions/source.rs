use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KeyReference, Reference, SecretName, Verification, rules};
use crate::addons::{DEFAULT_CREDENTIALS_KEY, Timeout, is_default, rules::go_duration};

/// A reference to a Source.
pub type SourceRef = Reference;

/// A Git repository, an OCI artifact or a bucket whose files other objects use.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "Source",
    plural = "sources",
    shortname = "src",
    category = "chandler",
    doc = "A Git repository, an OCI artifact or a bucket whose files other objects use.",
    namespaced,
    status = "SourceStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec['git','oci','bucket']['url','endpoint']"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Subject", type_ = "string", json_path = ".status.commit.subject"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Author", type_ = "string", priority = 1, json_path = ".status.commit.author"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["git", "oci", "bucket"]),
    validation = rules::ssh_requires_credentials()
)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// The Git repository and what to fetch of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitRepository>,
    /// The artifact in an OCI registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciArtifact>,
    /// The bucket of an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Interval at which Chandler polls the repository or registry, as a Go duration. Sources with the same URL and credentials
    /// share a poll. An interval shorter than the minimum of the manager, which is 10s by default, is treated like the minimum.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub interval: Timeout,
    /// A Secret in the same namespace with `username` and `password`, `bearerToken`, or `tls.crt` and `tls.key`, or with a
    /// Docker config, which is used if the Secret has none of these. For a Git repository over ssh: `identity`, the
    /// private key, `password`, its passphrase if it has one, and `known_hosts`, the keys of the server. For a bucket:
    /// `accessKey` and `secretKey` of S3, `serviceAccount` of GCS, or `accountKey` of Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SourceCredentials>,
    /// Key of a Secret in the same namespace with the certificate authority to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<KeyReference>,
    /// Files and folders that are left out. A pattern without `/` matches a name at any depth, a pattern with `/` a path
    /// from the root. `*` matches any characters except `/`, `**` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub ignore: Vec<String>,
    /// Selects by label the namespaces that may use the Source, besides its own. If unset, a Source in the platform
    /// namespace can be used in all namespaces, any other Source only in its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub namespaces: Option<LabelSelector>,
    /// Accepts webhooks that request a poll. If unset, webhooks for the Source are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<SourceReceiver>,
    /// Keeps the last revision: Chandler does not poll the repository until this is `false` again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspend: bool,
}

fn default_interval() -> Timeout {
    Timeout("1m".to_owned())
}

/// A reference to a Secret with credentials in the namespace of the Source.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SourceCredentials {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of a Docker config in the Secret. If unset, `config.json`. Not used for ssh and buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
    /// Whether the Secret or its keys may be missing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub optional: bool,
}

impl From<&SourceCredentials> for KeyReference {
    fn from(credentials: &SourceCredentials) -> Self {
        let SourceCredentials { name, key, optional } = credentials;
        let key = key.as_deref().unwrap_or(DEFAULT_CREDENTIALS_KEY).to_owned();
        Self { name: name.clone(), key, optional: *optional }
    }
}

/// A Git repository over https or ssh.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct GitRepository {
    /// The repository, such as `https://git.example/fleet/clusters.git` or `ssh://git@git.example/fleet/clusters.git`. An
    /// https URL must not contain a user name or password, an ssh URL must name the user.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::git_url(), validation = rules::git_login())]
    pub url: String,
    /// What to fetch. If unset, the default branch of the repository.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// Signatures that commits or tags must have. If unset, signatures are not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitVerification>,
}

/// A branch, a tag, the newest tag in a range of versions, or a commit.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["branch", "tag", "semver", "commit"])
)]
pub struct GitReference {
    /// Name of a branch, without `refs/heads/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = rules::git_ref_name())]
    pub branch: Option<String>,
    /// Name of a tag, without `refs/tags/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = rules::git_ref_name())]
    pub tag: Option<String>,
    /// A range of versions. The tag with the newest version in the range is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub semver: Option<String>,
    /// The full id of a commit. It pins the Source: nothing moves until it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    #[x_kube(validation = rules::commit_id())]
    pub commit: Option<String>,
}

/// An artifact in an OCI registry: a layer with an archive, as `flux push artifact`, `oras push` and `helm push` create it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct OciArtifact {
    /// The repository in the registry, such as `oci://registry.example/platform/fleet`, without a tag.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::oci_url(), validation = rules::no_login())]
    pub url: String,
    /// What to fetch. If unset, the tag `latest`.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<OciReference>,
    /// Signatures that the artifact must have. If unset, only those that the platform requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
}

/// A tag, the newest tag in a range of versions, or a digest.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["tag", "semver", "digest"]))]
pub struct OciReference {
    /// Name of a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::oci_tag())]
    pub tag: Option<String>,
    /// A range of versions. The tag with the newest version in the range is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub semver: Option<String>,
    /// The digest of a manifest. It pins the Source: nothing moves until it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    #[x_kube(validation = rules::sha256_digest())]
    pub digest: Option<String>,
}

/// A bucket of an object store.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct Bucket {
    /// The protocol of the object store.
    pub provider: BucketProvider,
    /// The address of the object store, such as `https://s3.eu-central-1.amazonaws.com`, `https://storage.googleapis.com` or
    /// `https://ACCOUNT.blob.core.windows.net`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::https_url(), validation = rules::no_login())]
    pub endpoint: String,
    /// Name of the bucket, or of the container of Azure.
    #[schemars(length(min = 3, max = 222))]
    #[x_kube(validation = rules::bucket_name())]
    pub name: String,
    /// Region of the bucket, for S3. If unset, `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub region: Option<String>,
    /// Folder of the bucket whose objects are the files. If unset, the whole bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = rules::relative_path())]
    pub prefix: Option<String>,
}

/// The protocol of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BucketProvider {
    /// Amazon S3 and compatible stores.
    S3,
    /// Google Cloud Storage.
    #[serde(rename = "GCS")]
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

/// Signatures that commits or tags must have.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct GitVerification {
    /// What must be signed.
    #[serde(default)]
    pub mode: VerificationMode,
    /// The Secret with the SSH public keys, in the format of `authorized_keys` or `allowed_signers`, one or more per key of
    /// the Secret. A signature of one of them is enough.
    pub keys: SecretName,
}

/// What must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerificationMode {
    /// The commit.
    #[default]
    Commit,
    /// The annotated tag. Requires `ref.tag` or `ref.semver`.
    Tag,
    /// Both the annotated tag and its commit.
    TagAndCommit,
}

/// Accepts webhooks of Git hosts and registries.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct SourceReceiver {
    /// Key of a Secret in the same namespace with the secret that webhooks are signed with.
    pub secret: KeyReference,
}

/// Observed state of a Source.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// Conditions of the object: `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The revision that other objects use: the id of the commit, the digest of the artifact, or a
    /// digest of the list of objects of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The commit of the revision, or the description of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<SourceRevisionRecord>,
    /// The keys that signed the commit, or the rules that the signatures of the artifact meet. Unset if no signature is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<String>,
    /// The last ten revisions, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<SourceRevision>,
    /// The value of the annotation `chandler.dev/reconcile-at` at the last poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A commit, or an artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRevisionRecord {
    /// Id of the commit, or digest of the artifact.
    pub id: String,
    /// Name and email address of the author, as the commit or the annotations of the artifact state them.
    pub author: String,
    /// First line of the message. Of an artifact, the revision that its annotations name.
    pub subject: String,
    /// When it was committed or created. Unset if it does not state a valid time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A revision that a Source had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRevision {
    /// The revision.
    pub revision: String,
    /// First line of the message of its commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// When Chandler fetched it.
    pub at: Time,
}
