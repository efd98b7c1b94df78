package release

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest/fake"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
)

// objectOn returns an object of a revision, and what the API server answers when it is read.
func objectOn(kind schema.GroupVersionKind, name string, status int, answer string) *resource.Info {
	return &resource.Info{
		Name: name, Namespace: "apps",
		Mapping: &meta.RESTMapping{
			Resource: schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "things"}, GroupVersionKind: kind,
			Scope: meta.RESTScopeNamespace,
		},
		Client: &fake.RESTClient{
			NegotiatedSerializer: resource.UnstructuredPlusDefaultContentConfig().NegotiatedSerializer,
			Client: fake.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(answer)),
				}, nil
			}),
		},
	}
}

func TestRollbackKeepsCRDsAndObjectsOfOthers(t *testing.T) {
	config := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	owned := func(release, namespace string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app.kubernetes.io/managed-by":"Helm"},` +
			`"annotations":{"meta.helm.sh/release-name":"` + release + `","meta.helm.sh/release-namespace":"` + namespace + `"}}}`
	}
	const missing = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
	const forbidden = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403}`
	cases := map[string]struct {
		info  *resource.Info
		want  bool
		fails bool
	}{
		"own object":            {objectOn(config, "a", 200, owned("web", "apps")), true, false},
		"of another release":    {objectOn(config, "a", 200, owned("other", "apps")), false, false},
		"of another namespace":  {objectOn(config, "a", 200, owned("web", "other")), false, false},
		"of no release":         {objectOn(config, "a", 200, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`), false, false},
		"missing":               {objectOn(config, "a", 404, missing), false, false},
		"unreadable":            {objectOn(config, "a", 403, forbidden), false, true},
		"CRD of the release":    {objectOn(crdKind.WithVersion("v1"), "a", 200, owned("web", "apps")), false, false},
		"without a fixed name":  {objectOn(config, "", 200, owned("web", "apps")), false, false},
		"in the restored one":   {objectOn(config, "restored", 403, forbidden), true, false},
		"CRD, also restored":    {objectOn(crdKind.WithVersion("v1"), "restored", 403, forbidden), true, false},
		"same name, other kind": {objectOn(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "restored", 404, missing), false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			client := &client{
				Client: &kube.Client{Namespace: "apps"}, release: "web",
				operation: &operation.Operation{Log: slog.New(slog.DiscardHandler)},
			}
			target := kube.ResourceList{
				objectOn(config, "restored", 403, forbidden), objectOn(crdKind.WithVersion("v1"), "restored", 403, forbidden),
			}
			got, err := client.deletable(kube.ResourceList{c.info}, target)
			if (err != nil) != c.fails || got.Contains(c.info) != c.want {
				t.Fatalf("got %v, %v", got, err)
			}
		})
	}
}

// roundTripper answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// Helm leaves an object behind that it cannot read, and reports success.
func TestUpdatesFailIfAnObjectCannotBeRead(t *testing.T) {
	const owned = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app.kubernetes.io/managed-by":"Helm"},` +
		`"annotations":{"meta.helm.sh/release-name":"web","meta.helm.sh/release-namespace":"apps"}}}`
	for name, c := range map[string]struct {
		update func(*client, kube.ResourceList, kube.ResourceList, []kube.ClientUpdateOption) (*kube.Result, error)
		// reads are the statuses of the reads. The second one is Helm's.
		reads []int
		want  string
		fails toolv1.FailureCategory
	}{
		"rollback":               {(*client).updateForRollback, []int{200, 200}, "GET GET DELETE", 0},
		"rollback, forbidden":    {(*client).updateForRollback, []int{200, 403}, "GET GET", failure.Forbidden},
		"upgrade":                {(*client).updateForUpgrade, []int{200, 200}, "GET GET DELETE", 0},
		"upgrade, forbidden":     {(*client).updateForUpgrade, []int{403}, "GET", 0},
		"upgrade, not available": {(*client).updateForUpgrade, []int{503}, "GET", failure.Unreachable},
		"upgrade, missing":       {(*client).updateForUpgrade, []int{404}, "GET", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			transport := operation.NewTransport(roundTripper(func(request *http.Request) (*http.Response, error) {
				requests = append(requests, request.Method)
				status := 200
				if len(requests) <= len(c.reads) {
					status = c.reads[len(requests)-1]
				}
				return &http.Response{
					StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(owned)), Request: request,
				}, nil
			}), time.Minute, operation.NewLease())
			info := objectOn(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "a", 0, "")
			info.Client.(*fake.RESTClient).Client = &http.Client{Transport: transport}
			client := &client{
				Client: &kube.Client{Namespace: "apps"}, release: "web",
				operation: &operation.Operation{Log: slog.New(slog.DiscardHandler), Transport: transport},
			}
			options := []kube.ClientUpdateOption{kube.ClientUpdateOptionServerSideApply(true, false)}
			_, err := c.update(client, kube.ResourceList{info}, nil, options)
			if (err != nil) != (c.fails != 0) || err != nil && failure.Classify(err).Category != c.fails {
				t.Errorf("got %v", err)
			}
			if got := strings.Join(requests, " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestLeftoversOfARollback(t *testing.T) {
	const (
		deployed   = rcommon.StatusDeployed
		superseded = rcommon.StatusSuperseded
		failed     = rcommon.StatusFailed
	)
	cases := map[string]struct {
		statuses []rcommon.Status
		want     []int
	}{
		"failed upgrade":            {[]rcommon.Status{failed, deployed, superseded}, []int{2}},
		"failed rollback":           {[]rcommon.Status{failed, failed, deployed, superseded}, []int{3, 2}},
		"after it was superseded":   {[]rcommon.Status{failed, failed, superseded, superseded}, []int{3, 2}},
		"interrupted rollback":      {[]rcommon.Status{rcommon.StatusPendingRollback, failed, deployed}, []int{2, 1}},
		"nothing but failures":      {[]rcommon.Status{failed, failed}, []int{1}},
		"the newest is deployed":    {[]rcommon.Status{deployed, failed, superseded}, nil},
		"there is only one failure": {[]rcommon.Status{failed}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var revisions []*rspb.Release
			for i, status := range c.statuses {
				revisions = append(revisions, revision(len(c.statuses)-i, status, "", ""))
			}
			var got []int
			for _, release := range mayHaveLeftovers(revisions) {
				got = append(got, release.Version)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestObjectsAreNotListedTwice(t *testing.T) {
	config := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	newest, same, other := objectOn(config, "a", 200, ""), objectOn(config, "a", 200, ""), objectOn(config, "b", 200, "")
	original := kube.ResourceList{newest}
	got := withLeftovers(original, kube.ResourceList{same, other})
	if len(got) != 2 || got[0] != newest || got[1] != other || len(original) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestKindsThatAreNotServedHaveNoObjects(t *testing.T) {
	unserved := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "example.invalid", Kind: "Thing"}}
	if err := withoutNoMatch(utilerrors.NewAggregate([]error{unserved, unserved})); err != nil {
		t.Errorf("got %v", err)
	}
	if err := withoutNoMatch(utilerrors.NewAggregate([]error{unserved, io.ErrUnexpectedEOF})); err == nil {
		t.Error("another error is ignored")
	}
	if err := withoutNoMatch(nil); err != nil {
		t.Errorf("got %v", err)
	}
}
