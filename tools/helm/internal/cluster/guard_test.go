package cluster

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/failure"
)

// guarded returns a client for a server, as client-go makes it, and the server's URL.
func guarded(t *testing.T, handler http.HandlerFunc) (*http.Client, string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	target := &toolv1.Target{Server: server.URL, Tls: &toolv1.Tls{CaPem: encode("CERTIFICATE", server.Certificate().Raw)}}
	cluster, err := NewPool(local).Get(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.transport.CloseIdleConnections)
	return &http.Client{Transport: cluster.Transport()}, server.URL
}

func TestRedirectsAreRefused(t *testing.T) {
	var reached atomic.Int32
	internal := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer internal.Close()
	for _, location := range []string{internal.URL, "/elsewhere"} {
		client, server := guarded(t, func(response http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/elsewhere" {
				reached.Add(1)
			}
			http.Redirect(response, request, location, http.StatusTemporaryRedirect)
		})
		_, err := client.Get(server + "/api")
		if err == nil || failure.Classify(err).Category != failure.Unreachable || !strings.Contains(err.Error(), "redirects") {
			t.Errorf("got %v", err)
		}
	}
	if reached.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestRequestsToOtherHostsAreRefused(t *testing.T) {
	client, _ := guarded(t, func(http.ResponseWriter, *http.Request) {})
	if _, err := client.Get("https://127.0.0.1:1/"); err == nil || !strings.Contains(err.Error(), "is refused") {
		t.Errorf("got %v", err)
	}
}

func TestResponsesAreLimited(t *testing.T) {
	mebibyte := bytes.Repeat([]byte("x"), 1<<20)
	endless := func(response http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := response.Write(mebibyte); err != nil {
				return
			}
		}
	}
	for _, path := range []string{"/list", "/list?watch=true", "/log?follow=true"} {
		client, server := guarded(t, endless)
		response, err := client.Get(server + path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		if typed, ok := errors.AsType[*failure.Error](err); !ok || !strings.Contains(typed.Message, "MiB") {
			t.Errorf("%s: %v", path, err)
		}
		_ = response.Body.Close()
	}
	client, server := guarded(t, func(response http.ResponseWriter, _ *http.Request) {
		for range 2 * maxEvent >> 20 {
			_, _ = response.Write(append(mebibyte, '\n'))
		}
	})
	response, err := client.Get(server + "/list?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	if read, err := io.Copy(io.Discard, response.Body); err != nil || read < 2*maxEvent {
		t.Errorf("%d bytes of small events: %v", read, err)
	}
	_ = response.Body.Close()
}

func TestDiscoveryIsLimited(t *testing.T) {
	mebibyte := bytes.Repeat([]byte("x"), 1<<20)
	client, server := guarded(t, func(response http.ResponseWriter, _ *http.Request) { _, _ = response.Write(mebibyte) })
	client.Transport = &discoveryLimit{base: client.Transport}
	var err error
	for range maxDiscovery>>20 + 1 {
		response, sent := client.Get(server + "/apis")
		if sent != nil {
			t.Fatal(sent)
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("got %v", err)
	}
}

// protobufOf returns an object as API servers send it to clients that prefer protobuf.
func protobufOf(t *testing.T, object runtime.Object) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestOnlyAStatusOfAnErrorIsPassedOn(t *testing.T) {
	status := `{"kind":"Status","status":"Failure","message":"no such pod","reason":"NotFound","code":404}`
	for body, kept := range map[string]bool{
		status: true,
		protobufOf(t, &metav1.Status{Status: metav1.StatusFailure, Message: "no such pod"}): true,
		protobufOf(t, &metav1.Status{Status: metav1.StatusSuccess}):                         false,
		protobufOf(t, &corev1.Secret{Type: "of an internal server"}):                        false,
		"secret of an internal server":                                                      false,
		`{"secret": "of an internal server"}`:                                               false,
		`{"status":"Failure","message":"` + strings.Repeat("x", maxError) + `"}`:            false,
	} {
		client, server := guarded(t, func(response http.ResponseWriter, _ *http.Request) {
			response.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(response, body)
		})
		response, err := client.Get(server)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusNotFound || (string(got) == body) != kept || !kept && len(got) > 0 {
			t.Errorf("%.60s: %d %q, %v", body, response.StatusCode, got, err)
		}
		_ = response.Body.Close()
	}
}

func TestRefusedAddressesAreNotConnectedTo(t *testing.T) {
	var reached atomic.Int32
	server, target := apiServer(t)
	server.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	named := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for _, url := range []string{server.URL, named} {
		target.Server = url
		transport, err := newTransport(target, address.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&http.Client{Transport: transport}).Get(url)
		if err == nil || failure.Classify(err).Category != failure.Unreachable || !strings.Contains(err.Error(), "a loopback address") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if reached.Load() != 0 {
		t.Error("a refused address was connected to")
	}
	target.Proxy = &toolv1.Proxy{Url: "http://proxy.example:3128"}
	for _, host := range []string{"169.254.169.254", "2852039166", "0xA9FEA9FE", "127.1", "localhost"} {
		target.Server = "https://" + host
		if _, err := newTransport(target, address.Policy{}); err == nil {
			t.Errorf("the proxy is asked for %s", host)
		}
	}
	trusted := address.Policy{Trusted: []string{"proxy.example:3128"}}
	if _, err := newTransport(target, trusted); err != nil {
		t.Errorf("the hub decides by itself: %v", err)
	}
	trusted.RefuseUnverified, target.Tls.InsecureSkipVerify = true, true
	if _, err := newTransport(target, trusted); err == nil {
		t.Error("a server is not verified through the hub")
	}
}
