package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/failure"
)

const dialTimeout = 10 * time.Second

// newTransport returns a transport for the target. It uses the target's proxy or none, and ignores proxy settings of the
// environment. It connects to addresses that the policy allows.
func newTransport(target *toolv1.Target, policy address.Policy) (*http.Transport, error) {
	config, err := tlsConfig(target)
	if err != nil {
		return nil, err
	}
	proxy, err := proxyURL(target.GetProxy())
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		if err := checkProxied(proxy, target.GetServer(), policy, config.InsecureSkipVerify); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{
		Proxy:               http.ProxyURL(proxy),
		DialContext:         contextDialer(policy, config.InsecureSkipVerify),
		TLSClientConfig:     config,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,

		OnProxyConnectResponse: checkProxyResponse,
	}
	if proxy != nil && proxy.Scheme == "https" {
		transport.DialTLSContext = proxyDialer(checkedDialer(policy, config.InsecureSkipVerify), config, proxy)
	}
	return utilnet.SetTransportDefaults(transport), nil
}

// proxyURL returns the URL of the target's proxy with its credentials, or nil. Errors do not contain the credentials.
func proxyURL(proxy *toolv1.Proxy) (*url.URL, error) {
	if proxy.GetUrl() == "" {
		return nil, nil
	}
	parsed, err := url.Parse(proxy.GetUrl())
	if err != nil || parsed.Host == "" || parsed.User != nil {
		return nil, failure.New(failure.Unreachable, "the URL of the target's proxy is invalid")
	}
	switch parsed.Scheme {
	case "http", "https", "socks5":
	default:
		return nil, failure.New(failure.Unreachable, "the target's proxy has the unsupported scheme %q", parsed.Scheme)
	}
	if auth := proxy.GetAuth(); auth != nil {
		parsed.User = url.UserPassword(auth.GetUsername(), auth.GetPassword())
	}
	return parsed, nil
}

// checkProxyResponse makes a refusal of the proxy a network error that names the proxy.
func checkProxyResponse(_ context.Context, proxy *url.URL, _ *http.Request, response *http.Response) error {
	if response.StatusCode == http.StatusOK {
		return nil
	}
	err := fmt.Errorf("the proxy %s responded with %d %s", proxy.Host, response.StatusCode, http.StatusText(response.StatusCode))
	return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
}

// proxyDialer connects to an https proxy. The proxy has the same authority as the API server, but its own name, and does
// not get the client certificate.
func proxyDialer(dialer *net.Dialer, server *tls.Config, proxy *url.URL) func(context.Context, string, string) (net.Conn, error) {
	tlsDialer := &tls.Dialer{NetDialer: dialer, Config: &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         proxy.Hostname(),
		RootCAs:            server.RootCAs,
		InsecureSkipVerify: server.InsecureSkipVerify, //nolint:gosec // set by the user
	}}
	return tlsDialer.DialContext
}

func tlsConfig(target *toolv1.Target) (*tls.Config, error) {
	options := target.GetTls()
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         options.GetServerName(),
		InsecureSkipVerify: options.GetInsecureSkipVerify(), //nolint:gosec // set by the user
	}
	if pem := options.GetCaPem(); len(pem) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, failure.New(failure.Unreachable, "the target's CA contains no certificate")
		}
	}
	if len(options.GetClientCertificatePem()) > 0 || len(options.GetClientKeyPem()) > 0 {
		certificate, err := tls.X509KeyPair(options.GetClientCertificatePem(), options.GetClientKeyPem())
		if err != nil {
			return nil, failure.New(failure.Unauthorized, "the target's client certificate and key do not match: %v", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
