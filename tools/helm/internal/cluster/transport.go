package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

const dialTimeout = 10 * time.Second

// newTransport returns a transport for the target. It ignores proxy settings of the environment.
func newTransport(target *toolv1.Target) (*http.Transport, error) {
	config, err := tlsConfig(target)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	dial := dialer.DialContext
	if socket := target.GetDial(); socket != "" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               func(*http.Request) (*url.URL, error) { return nil, nil },
		DialContext:         dial,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
	}), nil
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
