package cluster

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
)

const (
	// maxResponse is the maximum size of a response in bytes. The records of a release with a long history fit.
	maxResponse = 64 << 20
	// maxEvent is the maximum size of an event of a watch. API servers refuse larger objects.
	maxEvent = 16 << 20
	// maxError is the maximum size of an error.
	maxError = 1 << 20
)

// guard limits what an API server may answer. A workload cluster may belong to someone who wants to harm Chandler.
//
// It refuses redirects, which http.Client would follow with the credentials of the cluster, limits the size of responses,
// and passes nothing of an error on but a Kubernetes status: everything else may come from another server.
type guard struct {
	base *http.Transport
	// host is the only host that requests may have.
	host string
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != g.host || request.URL.Scheme != "https" {
		return nil, failure.New(failure.Unreachable, "a request to %s is refused: the cluster's API server is %s", request.URL.Host, g.host)
	}
	response, err := g.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	switch status := response.StatusCode; {
	case status >= 300 && status < 400 && status != http.StatusNotModified:
		_ = response.Body.Close()
		return nil, failure.New(failure.Unreachable,
			"the cluster's API server redirects to another address (HTTP %d), which an API server never does: check the kubeconfig's server", status)
	case status >= 400:
		replaceError(response)
	case response.StatusCode != http.StatusSwitchingProtocols:
		response.Body = &limitedBody{ReadCloser: response.Body, events: operation.IsStream(request)}
	}
	return response, nil
}

// replaceError replaces the body of an error that is not a Kubernetes status by nothing.
func replaceError(response *http.Response) {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxError+1))
	_ = response.Body.Close()
	body := []byte{}
	if err == nil && len(text) <= maxError && isFailure(text) {
		body = text
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	response.Header.Del("Content-Encoding")
}

// isFailure reports whether a body is a Kubernetes status that reports a failure: in JSON, or in protobuf, which clients of
// Kubernetes' own kinds ask for.
func isFailure(text []byte) bool {
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil {
		return status.Status == metav1.StatusFailure
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	decoded, isStatus := object.(*metav1.Status)
	return err == nil && isStatus && decoded.Status == metav1.StatusFailure
}

// limitedBody fails when the response, or one event of a watch, is too large.
type limitedBody struct {
	io.ReadCloser
	events bool
	// kept is the number of bytes that a reader has to keep: of the whole body, or of an event that is not complete yet.
	kept int64
}

func (b *limitedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.kept += int64(n)
	limit, what := int64(maxResponse), "response"
	if b.events {
		limit, what = maxEvent, "line of a stream"
		if end := bytes.LastIndexByte(into[:n], '\n'); end >= 0 {
			b.kept = int64(n - end - 1)
		}
	}
	if b.kept > limit {
		return 0, failure.New(failure.Unreachable, "a %s of the cluster's API server has more than %d MiB, which is not read", what, limit>>20)
	}
	return n, err
}
