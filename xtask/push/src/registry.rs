//! The part of the OCI distribution API that pushes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use chandler_tls::{Trust, certificates, client_config};
use reqwest::{
    Client, RequestBuilder, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, LOCATION, WWW_AUTHENTICATE},
    redirect,
};
use serde_json::Value;

use crate::{challenge::Challenge, reference::Reference};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For one request, with the upload of a layer.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The user of a registry.
pub struct Credentials {
    pub username: String,
    pub password: String,
}

enum Authorization {
    None,
    Basic(Credentials),
    Bearer(String),
}

/// A repository of a registry.
pub struct Registry {
    client: Client,
    /// Ends with the name of the repository and `/`.
    url: Url,
    authorization: Authorization,
}

impl Registry {
    /// Authenticates as the registry demands.
    pub async fn connect(
        reference: &Reference,
        authority: Option<Vec<u8>>,
        credentials: Option<Credentials>,
    ) -> Result<Self> {
        let trust = match authority {
            Some(pem) => Trust::SystemAnd(certificates(&pem)?),
            None => Trust::System,
        };
        let client = Client::builder()
            .https_only(true)
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .tls_backend_preconfigured(client_config(trust, None)?)
            .build()?;
        let Reference { host, repository, .. } = reference;
        let base: Url =
            format!("https://{host}/v2/").parse().with_context(|| format!("{host} is not a host"))?;
        let response =
            client.get(base.clone()).send().await.with_context(|| format!("connecting to {host}"))?;
        let authorization = match response.status() {
            StatusCode::OK => Authorization::None,
            StatusCode::UNAUTHORIZED => {
                let header = header(response.headers(), WWW_AUTHENTICATE.as_str())?;
                authenticate(&client, Challenge::parse(header, repository)?, credentials).await?
            }
            status => bail!("{base} answers {status}: is it a registry?"),
        };
        Ok(Self { client, url: base.join(&format!("{repository}/"))?, authorization })
    }

    /// Pushes a blob, unless the registry has it.
    pub async fn push_blob(&self, digest: &str, read: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
        let head = self.authorized(self.client.head(self.url.join(&format!("blobs/{digest}"))?));
        if head.send().await?.status() == StatusCode::OK {
            return Ok(());
        }
        let start = self.authorized(self.client.post(self.url.join("blobs/uploads/")?));
        let started = expect(start.send().await?, StatusCode::ACCEPTED).await?;
        let mut upload = self.url.join(header(started.headers(), LOCATION.as_str())?)?;
        ensure!(
            upload.origin() == self.url.origin(),
            "the registry wants the upload at another host, {upload}, which is not supported"
        );
        upload.query_pairs_mut().append_pair("digest", digest);
        let put = self.authorized(self.client.put(upload));
        let put = put.header(CONTENT_TYPE, "application/octet-stream").body(read()?);
        expect(put.send().await?, StatusCode::CREATED).await.map(drop)
    }

    /// Pushes a manifest under a tag, and checks the digest that the registry computes.
    pub async fn push_manifest(
        &self,
        tag: &str,
        media_type: &str,
        digest: &str,
        manifest: Vec<u8>,
    ) -> Result<()> {
        let put = self.authorized(self.client.put(self.url.join(&format!("manifests/{tag}"))?));
        let put = put.header(CONTENT_TYPE, media_type).body(manifest);
        let pushed = expect(put.send().await?, StatusCode::CREATED).await?;
        if let Ok(found) = header(pushed.headers(), "docker-content-digest") {
            ensure!(found == digest, "the registry stored the manifest as {found}, not as {digest}");
        }
        Ok(())
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.authorization {
            Authorization::None => request,
            Authorization::Basic(Credentials { username, password }) => {
                request.basic_auth(username, Some(password))
            }
            Authorization::Bearer(token) => request.bearer_auth(token),
        }
    }
}

async fn authenticate(
    client: &Client,
    challenge: Challenge,
    credentials: Option<Credentials>,
) -> Result<Authorization> {
    let credentials =
        credentials.context("the registry requires a login: set REGISTRY_USERNAME and REGISTRY_PASSWORD")?;
    let url = match challenge {
        Challenge::Basic => return Ok(Authorization::Basic(credentials)),
        Challenge::Bearer(url) => url,
    };
    let request = client.get(url.clone()).basic_auth(&credentials.username, Some(&credentials.password));
    let answer = expect(request.send().await.context("requesting a token")?, StatusCode::OK).await?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)
        .with_context(|| format!("the answer of {url} is not JSON"))?;
    let token = answer["token"].as_str().or(answer["access_token"].as_str());
    let token = token.with_context(|| format!("the answer of {url} contains no token"))?;
    Ok(Authorization::Bearer(token.to_owned()))
}

/// Returns the response if it has the status. The error contains the beginning of its body, in which registries explain it.
async fn expect(response: Response, expected: StatusCode) -> Result<Response> {
    let status = response.status();
    if status == expected {
        return Ok(response);
    }
    let url = response.url().clone();
    let body = response.text().await.unwrap_or_default();
    bail!("{url} answers {status}: {}", body.chars().take(500).collect::<String>())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str> {
    let value = headers.get(name).with_context(|| format!("the registry's response has no header {name}"))?;
    value.to_str().with_context(|| format!("the header {name} of the registry is not text"))
}
