package release

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
)

// Helm applies objects inside its client, which returns a field conflict only as an error. So a transport ignores the fields of
// other managers if requested: it sends the object again without the fields that the API server names.

// maxIgnored is how often an object is sent again. Another client may change more fields in the meantime.
const maxIgnored = 2

// ignoringGetter makes clients whose requests go through an ignoringTransport.
type ignoringGetter struct {
	*cluster.Session
	client *client
}

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (g ignoringGetter) ToRESTConfig() (*rest.Config, error) {
	config := g.Config()
	config.Transport = &ignoringTransport{base: config.Transport, isActive: g.client.ignoreConflicts.Load, report: g.client.reportIgnored}
	return config, nil
}

// ignoringTransport applies objects without the fields that belong to other field managers.
type ignoringTransport struct {
	base     http.RoundTripper
	isActive func() bool
	report   func(object *unstructured.Unstructured, conflicts []metav1.StatusCause)
}

// RoundTrip implements http.RoundTripper.
func (t *ignoringTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !t.isActive() || !isUnforcedApply(request) || request.Body == nil {
		return t.base.RoundTrip(request)
	}
	body, err := readAndClose(request.Body)
	if err != nil {
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		response, err := t.base.RoundTrip(withBody(request, body))
		if err != nil || response.StatusCode != http.StatusConflict || attempt == maxIgnored {
			return response, err
		}
		answer, err := readAndClose(response.Body)
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(answer))
		object, ignored := withoutConflicts(body, answer)
		if len(ignored) == 0 {
			return response, nil
		}
		if body, err = json.Marshal(object); err != nil {
			return nil, err
		}
		t.report(object, ignored)
	}
}

// isUnforcedApply reports whether a request is a server-side apply that does not overwrite fields of others.
func isUnforcedApply(request *http.Request) bool {
	return request.Method == http.MethodPatch &&
		strings.HasPrefix(request.Header.Get("Content-Type"), string(types.ApplyYAMLPatchType)) &&
		request.URL.Query().Get("force") != "true"
}

func readAndClose(body io.ReadCloser) ([]byte, error) {
	content, err := io.ReadAll(body)
	if closeErr := body.Close(); err == nil {
		err = closeErr
	}
	return content, err
}

func withBody(request *http.Request, body []byte) *http.Request {
	sent := request.Clone(request.Context())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	sent.ContentLength = int64(len(body))
	return sent
}

// withoutConflicts returns an object without the fields that the API server's answer names, and these conflicts. It returns
// no conflicts if nothing can be ignored.
func withoutConflicts(body, answer []byte) (*unstructured.Unstructured, []metav1.StatusCause) {
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Details == nil {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &object.Object); err != nil {
		return nil, nil
	}
	var ignored []metav1.StatusCause
	for _, cause := range status.Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		if slices.Contains(ownerPaths, cause.Field) {
			return nil, nil
		}
		if path, found := findPath(object.Object, cause.Field); found && len(path) > 0 {
			removeField(object.Object, path)
			ignored = append(ignored, cause)
		}
	}
	return object, ignored
}

// ownerPaths are the fields by which Helm finds out to which release an object belongs. Without them, the object would not be
// part of the release.
var ownerPaths = []string{
	".metadata.labels." + managedByLabel,
	".metadata.annotations." + releaseNameAnnotation,
	".metadata.annotations." + releaseNamespaceAnnotation,
}

func (c *client) reportIgnored(object *unstructured.Unstructured, conflicts []metav1.StatusCause) {
	fields := "1 field"
	if len(conflicts) > 1 {
		fields = fmt.Sprintf("%d fields", len(conflicts))
	}
	apiVersion, kind := object.GetAPIVersion(), object.GetKind()
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	for _, conflict := range conflicts {
		c.operation.Log.Info("a field is left to its manager", "kind", kind, "object", name, "field", conflict.Field)
		c.addIgnored(fmt.Sprintf("%s of %s %s", conflict.Field, kind, name))
	}
	c.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING,
		fmt.Sprintf("leaving %s of %s %s to %s", fields, kind, object.GetName(), failure.FieldManagers(conflicts)),
		&toolv1.ObjectRef{ApiVersion: apiVersion, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})
}

func (c *client) addIgnored(field string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignored[field] = true
}

// ignoredFields returns the fields that were left to other field managers, sorted.
func (c *client) ignoredFields() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.ignored))
}
