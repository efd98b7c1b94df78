package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
)

// local allows the servers of these tests.
var local = address.Policy{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}

// connectProxy serves CONNECT requests. Every host leads to the address to. It requires the user name and password
// "user" and "canary".
type connectProxy struct {
	to       string
	requests atomic.Int32
	// certificates is the number of client certificates of the last request.
	certificates atomic.Int32
}

func (p *connectProxy) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	p.requests.Add(1)
	if request.TLS != nil {
		p.certificates.Store(int32(len(request.TLS.PeerCertificates))) //nolint:gosec // a short chain
	}
	login := &http.Request{Header: http.Header{"Authorization": request.Header["Proxy-Authorization"]}}
	if user, password, _ := login.BasicAuth(); request.Method != http.MethodConnect || user != "user" || password != "canary" {
		response.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		response.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = far.Close() }()
	response.WriteHeader(http.StatusOK)
	near, buffered, err := http.NewResponseController(response).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = near.Close() }()
	go func() { _, _ = io.Copy(far, buffered) }()
	_, _ = io.Copy(near, far)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// get sends a request to the target.
func get(t *testing.T, target *toolv1.Target) error {
	t.Helper()
	transport, err := newTransport(target, local)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(target.GetServer())
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// apiServer returns a server and a target that trusts it and has a client certificate.
func apiServer(t *testing.T) (*httptest.Server, *toolv1.Target) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	certificate := encode("CERTIFICATE", server.Certificate().Raw)
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return server, &toolv1.Target{Server: server.URL, Tls: &toolv1.Tls{
		CaPem:                certificate,
		ClientCertificatePem: certificate,
		ClientKeyPem:         encode("PRIVATE KEY", key),
	}}
}

func TestProxyOfTheTargetIsUsed(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			server, target := apiServer(t)
			proxy := &connectProxy{to: server.Listener.Addr().String()}
			listener := httptest.NewUnstartedServer(proxy)
			listener.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
			if scheme == "http" {
				listener.Start()
			} else {
				listener.StartTLS()
			}
			defer listener.Close()
			// Only the proxy knows this name. The certificates of httptest are valid for example.com.
			target.Server = "https://only-the-proxy-resolves.invalid:6443"
			target.Tls.ServerName = "example.com"
			target.Proxy = &toolv1.Proxy{
				Url:  listener.URL,
				Auth: &toolv1.BasicAuth{Username: "user", Password: "canary"},
			}
			if err := get(t, target); err != nil {
				t.Fatal(err)
			}
			if proxy.requests.Load() != 1 || proxy.certificates.Load() != 0 {
				t.Errorf("%d requests, %d certificates", proxy.requests.Load(), proxy.certificates.Load())
			}
			target.Proxy.Auth.Password = "canary-2"
			err := get(t, target)
			if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "responded with 407") {
				t.Errorf("wrong password: %v", err)
			}
		})
	}
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:canary@127.0.0.1:1")
	t.Setenv("NO_PROXY", "")
	transport, err := newTransport(&toolv1.Target{Server: "https://example.com"}, local)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := transport.Proxy(httptest.NewRequest(http.MethodGet, "https://example.com", nil))
	if err != nil || proxy != nil {
		t.Errorf("proxy %v, error %v", proxy, err)
	}
}

func TestInvalidProxiesAreRefusedWithoutTheirCredentials(t *testing.T) {
	for _, proxy := range []string{"socks4://proxy:1080", "proxy", "http://user:canary@proxy:3128", "http://canary:%zz@proxy"} {
		_, err := newTransport(&toolv1.Target{Server: "https://server", Proxy: &toolv1.Proxy{Url: proxy}}, local)
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", proxy, err)
		}
	}
}
