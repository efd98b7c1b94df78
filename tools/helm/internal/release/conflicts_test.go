package release

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"chandler.dev/tools/helm/internal/operation"
)

// conflicting is an API server on which another manager owns fields: it answers with a conflict for those of them that a
// request contains.
type conflicting struct {
	// fields are the paths that conflict, by attempt. The last one holds for later attempts.
	fields [][]string
	bodies []string
	extra  metav1.CauseType
}

func (c *conflicting) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	fields := c.fields[min(len(c.bodies), len(c.fields)-1)]
	c.bodies = append(c.bodies, string(body))
	object := map[string]any{}
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	var causes []metav1.StatusCause
	for _, field := range fields {
		if _, found := findPath(object, field); found {
			causes = append(causes, metav1.StatusCause{
				Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "kubectl" using v1`, Field: field,
			})
		}
	}
	if len(causes) == 0 && c.extra == "" {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
	if c.extra != "" {
		causes = append(causes, metav1.StatusCause{Type: c.extra, Field: ".data.a"})
	}
	answer, err := json.Marshal(apierrors.NewApplyConflict(causes, "conflict").Status())
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(bytes.NewReader(answer))}, nil
}

func TestConflictsAreIgnored(t *testing.T) {
	const object = `{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"},"name":"web"}}`
	withData := func(data string) string { return strings.Replace(object, `"data":{"a":"1","b":"2"},`, data, 1) }
	owner := ".metadata.labels.app.kubernetes.io/managed-by"
	cases := map[string]struct {
		inactive bool
		server   conflicting
		method   string
		header   string
		query    string
		status   int
		// last is the last body, and attempts is the number of them.
		last     string
		attempts int
		ignored  int
	}{
		"no conflict":         {server: conflicting{fields: [][]string{nil}}, status: 200, last: object, attempts: 1},
		"one field":           {server: conflicting{fields: [][]string{{".data.a"}}}, status: 200, last: withData(`"data":{"b":"2"},`), attempts: 2, ignored: 1},
		"all fields":          {server: conflicting{fields: [][]string{{".data.a", ".data.b"}}}, status: 200, last: withData(``), attempts: 2, ignored: 2},
		"another one later":   {server: conflicting{fields: [][]string{{".data.a"}, {".data.b"}}}, status: 200, last: withData(``), attempts: 3, ignored: 2},
		"too often":           {server: conflicting{fields: [][]string{{".data.a"}, {".data.b"}, {".metadata.name"}}}, status: 409, last: withData(``), attempts: 3, ignored: 2},
		"owner of the object": {server: conflicting{fields: [][]string{{".data.a", owner}}}, status: 409, last: object, attempts: 1},
		"another conflict":    {server: conflicting{fields: [][]string{nil}, extra: metav1.CauseTypeFieldValueInvalid}, status: 409, last: object, attempts: 1},
		"not requested":       {inactive: true, server: conflicting{fields: [][]string{{".data.a"}}}, status: 409, last: object, attempts: 1},
		"another patch":       {header: "application/merge-patch+json", server: conflicting{fields: [][]string{{".data.a"}}}, status: 409, last: object, attempts: 1},
		"another method":      {method: http.MethodPut, server: conflicting{fields: [][]string{{".data.a"}}}, status: 409, last: object, attempts: 1},
		"forced":              {query: "?force=true", server: conflicting{fields: [][]string{{".data.a"}}}, status: 409, last: object, attempts: 1},
		"explicitly unforced": {query: "?force=false", server: conflicting{fields: [][]string{{".data.a"}}}, status: 200, last: withData(`"data":{"b":"2"},`), attempts: 2, ignored: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ignored := 0
			transport := &ignoringTransport{
				base:     &c.server,
				isActive: func() bool { return !c.inactive },
				report:   func(_ *unstructured.Unstructured, conflicts []metav1.StatusCause) { ignored += len(conflicts) },
			}
			method, header := http.MethodPatch, "application/apply-patch+yaml"
			if c.method != "" {
				method = c.method
			}
			if c.header != "" {
				header = c.header
			}
			request, err := http.NewRequest(method, "https://example.invalid/x"+c.query, strings.NewReader(object))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", header)
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := readAndClose(response.Body)
			if err != nil || len(answer) == 0 {
				t.Errorf("the caller cannot read the answer: %q, %v", answer, err)
			}
			if response.StatusCode != c.status || len(c.server.bodies) != c.attempts || ignored != c.ignored {
				t.Errorf("got %d after %d attempts, ignored %d", response.StatusCode, len(c.server.bodies), ignored)
			}
			if got := c.server.bodies[len(c.server.bodies)-1]; strings.TrimSpace(got) != c.last {
				t.Errorf("got %s, want %s", got, c.last)
			}
		})
	}
}

func TestIgnoredFieldsAreReturned(t *testing.T) {
	client := &client{operation: &operation.Operation{Log: slog.New(slog.DiscardHandler)}, ignored: map[string]bool{}}
	web := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	web.SetName("web")
	web.SetNamespace("shop")
	role := &unstructured.Unstructured{Object: map[string]any{"kind": "ClusterRole"}}
	role.SetName("web")
	client.reportIgnored(web, []metav1.StatusCause{{Field: ".spec.replicas"}, {Field: ".metadata.labels.a"}})
	client.reportIgnored(web, []metav1.StatusCause{{Field: ".spec.replicas"}})
	client.reportIgnored(role, []metav1.StatusCause{{Field: ".rules"}})
	want := []string{".metadata.labels.a of Deployment shop/web", ".rules of ClusterRole web", ".spec.replicas of Deployment shop/web"}
	if got := client.ignoredFields(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
