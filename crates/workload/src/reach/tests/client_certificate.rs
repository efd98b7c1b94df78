//! Who gets the client certificate of a kubeconfig.

use rustls::{RootCertStore, server::WebPkiClientVerifier};
use tokio::task::JoinHandle;

use super::*;

/// Completes one TLS handshake, in which it asks for a certificate. Returns the port, and the number of certificates that the
/// client has sent.
async fn ask_for_certificate(authority: &Authority) -> (u16, JoinHandle<usize>) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let pair = authority.server(&[]).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let certificates = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = acceptor.accept(stream).await.unwrap();
        stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len)
    });
    (port, certificates)
}

#[tokio::test]
async fn a_proxy_does_not_get_the_client_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(&folder.path().join("pki"), "test").unwrap();
    let pair = authority.client("chandler", &[]).unwrap();
    let (port, certificates) = ask_for_certificate(&authority).await;
    let mut target = target(&format!("https://127.0.0.1:{port}"), authority.certificate());
    target.tls.client_certificate_pem = Some(pair.certificate.into_bytes());
    target.tls.client_key_pem = Some(pair.key.into_bytes());
    // Neither server answers a request.
    read(&target).await.unwrap_err();
    assert_eq!(certificates.await.unwrap(), 1, "the API server gets it");

    let (port, certificates) = ask_for_certificate(&authority).await;
    read(&through_proxy(&target, format!("https://127.0.0.1:{port}"), None)).await.unwrap_err();
    assert_eq!(certificates.await.unwrap(), 0);
}
