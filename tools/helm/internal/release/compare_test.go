package release

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest/fake"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/operation"
)

// apiServer answers requests about one object. It is no model of server-side apply: an object that is applied replaces the one
// on the cluster.
type apiServer struct {
	// live is the object on the cluster, or empty.
	live string
	// refusals are the answers to applying, by attempt. Empty accepts.
	refusals []string
	// err is the error of every request.
	err error

	applied []applied
}

// applied is one request.
type applied struct {
	dryRun, force bool
	body          *unstructured.Unstructured
}

const (
	notFound    = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
	changed     = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Conflict","code":409}`
	noDryRun    = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"BadRequest","code":400,"message":"admission webhook \"a.b.c\" does not support dry run"}`
	refused     = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Invalid","code":422,"message":"data.key: hunter22 is not allowed"}`
	badIdentity = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Unauthorized","code":401}`
)

func (s *apiServer) answer(request *http.Request) (*http.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	if request.Method == http.MethodGet {
		if s.live == "" {
			return answered(notFound), nil
		}
		return answered(s.live), nil
	}
	data, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	query, body := request.URL.Query(), &unstructured.Unstructured{}
	if err := body.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	s.applied = append(s.applied, applied{query.Get("dryRun") == "All", query.Get("force") == "true", body})
	if at := len(s.applied) - 1; at < len(s.refusals) && s.refusals[at] != "" {
		return answered(s.refusals[at]), nil
	}
	return answered(string(data)), nil
}

func answered(body string) *http.Response {
	status := struct{ Code int }{}
	_ = json.Unmarshal([]byte(body), &status)
	return &http.Response{
		StatusCode: max(status.Code, http.StatusOK), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// info returns a recorded object on the cluster.
func (s *apiServer) info(recorded *unstructured.Unstructured) *resource.Info {
	kind := recorded.GroupVersionKind()
	return &resource.Info{
		Name: recorded.GetName(), Namespace: "apps", Object: recorded,
		Mapping: &meta.RESTMapping{
			Resource:         schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "things"},
			GroupVersionKind: kind, Scope: meta.RESTScopeNamespace,
		},
		Client: &fake.RESTClient{
			NegotiatedSerializer: resource.UnstructuredPlusDefaultContentConfig().NegotiatedSerializer,
			Client:               fake.CreateHTTPClient(s.answer),
		},
	}
}

func newComparer(t *testing.T, spec CompareSpec) *comparer {
	t.Helper()
	running, err := operation.NewSet().Begin(context.Background(), operation.Options{
		Timeout: time.Minute, RequestTimeout: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.End)
	return &comparer{
		release: &Release{name: "web", namespace: "apps", operation: running, client: &client{}},
		spec:    spec, force: true, secrets: []string{"hunter22"},
	}
}

// owned returns a ConfigMap of the release, with more metadata and this data.
func ownedConfig(metadata, data string) string {
	return strings.ReplaceAll(`{'apiVersion':'v1','kind':'ConfigMap','metadata':{'name':'a','resourceVersion':'7',`+
		`'labels':{'app.kubernetes.io/managed-by':'Helm'}`+metadata+`},'data':{`+data+`}}`, "'", `"`)
}

const owner = `,'annotations':{'meta.helm.sh/release-name':'web','meta.helm.sh/release-namespace':'apps'}`

func TestCompareObject(t *testing.T) {
	recorded := ownedConfig("", `'key':'recorded'`)
	inSyncLive := ownedConfig(owner, `'key':'recorded'`)
	changedLive := ownedConfig(owner, `'key':'changed'`)
	excluded := `,'annotations':{'chandler.dev/drift':'ignore'}`
	key := []string{"/data/key"}
	cases := map[string]struct {
		recorded string
		server   apiServer
		correct  bool
		want     toolv1.ComparisonOutcome
		paths    []string
		reason   string
		// dryRuns tells for each apply whether it is a dry run.
		dryRuns []bool
	}{
		"in sync":           {recorded, apiServer{live: inSyncLive}, true, inSync, nil, "", []bool{true}},
		"changed":           {recorded, apiServer{live: changedLive}, false, drifted, key, "", []bool{true}},
		"corrected":         {recorded, apiServer{live: changedLive}, true, corrected, key, "", []bool{true, false}},
		"missing":           {recorded, apiServer{}, false, missing, nil, "", nil},
		"created":           {recorded, apiServer{}, true, corrected, nil, "", []bool{false}},
		"excluded, live":    {recorded, apiServer{live: ownedConfig(excluded, "")}, true, ignored, nil, "annotation chandler.dev/drift", nil},
		"excluded, chart":   {ownedConfig(excluded, ""), apiServer{live: changedLive}, true, ignored, nil, "the package excludes it", nil},
		"of another":        {recorded, apiServer{live: strings.ReplaceAll(changedLive, `"web"`, `"other"`)}, true, unknown, nil, "belongs to the release apps/other", nil},
		"being deleted":     {recorded, apiServer{live: ownedConfig(owner+`,'deletionTimestamp':'2026-01-01T00:00:00Z'`, "")}, true, unknown, nil, "being deleted", nil},
		"lost its owner":    {recorded, apiServer{live: ownedConfig("", `'key':'recorded'`)}, true, corrected, []string{"/metadata/annotations"}, "", []bool{true, false}},
		"no dry run":        {recorded, apiServer{live: changedLive, refusals: []string{noDryRun}}, true, unknown, nil, "a webhook does not support dry runs", []bool{true}},
		"refused":           {recorded, apiServer{live: changedLive, refusals: []string{"", refused}}, true, drifted, key, "data.key: (redacted) is not allowed", []bool{true, false}},
		"changed meanwhile": {recorded, apiServer{live: changedLive, refusals: []string{"", changed}}, true, corrected, key, "", []bool{true, false, true, false}},
		"changes always": {
			recorded, apiServer{live: changedLive, refusals: slices.Repeat([]string{changed}, maxAttempts)}, true, unknown, nil,
			"another client changes it", slices.Repeat([]bool{true}, maxAttempts),
		},
		"missing Job": {
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"spec":{}}`, apiServer{}, true, ignored, nil, "it is a Job", nil,
		},
		"CronJob": {
			`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"a"},"spec":{}}`, apiServer{}, true, corrected, nil, "", []bool{false},
		},
		"generated name": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`, apiServer{}, true, ignored, nil, "generated", nil,
		},
		"Secret": {
			strings.ReplaceAll(recorded, "ConfigMap", "Secret"),
			apiServer{live: strings.ReplaceAll(changedLive, "ConfigMap", "Secret"), refusals: []string{refused}}, true, unknown, nil,
			"the API server refused the Secret (Invalid)", []bool{true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := newComparer(t, CompareSpec{Correct: c.correct}).compareObject(c.server.info(readObject(t, c.recorded)))
			if err != nil {
				t.Fatal(err)
			}
			if got.GetOutcome() != c.want || !slices.Equal(got.GetPaths(), c.paths) || !strings.Contains(got.GetReason(), c.reason) ||
				c.reason == "" && got.GetReason() != "" {
				t.Errorf("got %v, want %v %q %q", got, c.want, c.paths, c.reason)
			}
			var dryRuns []bool
			for _, request := range c.server.applied {
				dryRuns = append(dryRuns, request.dryRun)
			}
			if !slices.Equal(dryRuns, c.dryRuns) {
				t.Errorf("applied with dry run %v, want %v", dryRuns, c.dryRuns)
			}
		})
	}
}

func TestCorrectionAppliesWhatWasCompared(t *testing.T) {
	server := apiServer{live: ownedConfig(owner, `'key':'changed'`)}
	got, err := newComparer(t, CompareSpec{Correct: true}).compareObject(server.info(readObject(t, ownedConfig("", `'key':'recorded'`))))
	if err != nil || got.GetOutcome() != corrected || len(server.applied) != 2 {
		t.Fatalf("got %v, %v", got, err)
	}
	correction := server.applied[1]
	if version := correction.body.GetResourceVersion(); version != "7" || !correction.force {
		t.Errorf("applied with resourceVersion %q and force %v", version, correction.force)
	}
	if !isOwnedBy(correction.body, "web", "apps") {
		t.Errorf("the object has lost its owner: %v", correction.body)
	}

	created := apiServer{}
	if _, err := newComparer(t, CompareSpec{Correct: true}).compareObject(created.info(readObject(t, ownedConfig("", "")))); err != nil {
		t.Fatal(err)
	}
	if len(created.applied) != 1 || created.applied[0].force || created.applied[0].body.GetResourceVersion() != "" {
		t.Errorf("got %v", created.applied)
	}
}

func TestComparisonFailsWithoutAnAnswer(t *testing.T) {
	for name, server := range map[string]apiServer{
		"unreachable":  {err: errors.New("connection refused")},
		"unauthorized": {live: badIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			comparer := newComparer(t, CompareSpec{})
			info := server.info(readObject(t, ownedConfig("", "")))
			comparer.objects = byRef([]*resource.Info{info})
			got, err := comparer.compareAll([]*toolv1.ObjectRef{objectRef(info)})
			if err == nil {
				t.Errorf("nothing is known about the object, but got %v", got)
			}
		})
	}
}

func TestIgnoreRulesMatchObjects(t *testing.T) {
	rule := func(kind, name, namespace string) *toolv1.IgnoreRule {
		return &toolv1.IgnoreRule{Kind: kind, Name: name, Namespace: namespace, Paths: []string{"/a"}}
	}
	server := apiServer{}
	info := server.info(readObject(t, ownedConfig("", "")))
	for want, rules := range map[int][]*toolv1.IgnoreRule{
		1: {rule("", "", ""), rule("ConfigMap", "", ""), rule("", "a", ""), rule("", "", "apps"), rule("ConfigMap", "a", "apps")},
		0: {rule("Secret", "", ""), rule("ConfigMap", "b", ""), rule("ConfigMap", "a", "other")},
	} {
		for _, rule := range rules {
			comparer := newComparer(t, CompareSpec{Ignore: []*toolv1.IgnoreRule{rule}})
			if got := comparer.ignoredPointers(info); len(got) != want {
				t.Errorf("%v: got %q", rule, got)
			}
		}
	}
}

func TestObjectsThatCannotBeFound(t *testing.T) {
	server := apiServer{live: ownedConfig(owner, "")}
	info := server.info(readObject(t, ownedConfig("", "")))
	comparer := newComparer(t, CompareSpec{Revision: 3})
	comparer.objects = byRef([]*resource.Info{info})
	gone := &toolv1.ObjectRef{ApiVersion: "a/v1", Kind: "Gone", Name: "a"}
	comparer.recorded = map[objectKey]bool{keyOf(gone): true}
	other := &toolv1.ObjectRef{ApiVersion: "v1", Kind: "ConfigMap", Namespace: "apps", Name: "other"}
	withoutNamespace := &toolv1.ObjectRef{ApiVersion: "v1", Kind: "ConfigMap", Name: "a"}
	got, err := comparer.compareAll([]*toolv1.ObjectRef{gone, other, withoutNamespace})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []toolv1.ComparisonOutcome{unknown, unknown, inSync} {
		if got[i].GetOutcome() != want {
			t.Errorf("got %v, want %v", got[i], want)
		}
	}
	if reason := got[0].GetReason(); reason != "the cluster does not serve a/v1 Gone" {
		t.Errorf("got %q", reason)
	}
}

func TestRulesOfAnAggregatedClusterRoleAreNotCompared(t *testing.T) {
	role := func(more string) string {
		return strings.ReplaceAll(`{'apiVersion':'rbac.authorization.k8s.io/v1','kind':'ClusterRole','metadata':{'name':'a','labels':`+
			`{'app.kubernetes.io/managed-by':'Helm'}`+owner+`}`+more+`}`, "'", `"`)
	}
	for more, want := range map[string]toolv1.ComparisonOutcome{"": drifted, `,'aggregationRule':{}`: inSync} {
		server := apiServer{live: role(`,'rules':[{'verbs':['get']}]` + more)}
		got, err := newComparer(t, CompareSpec{}).compareObject(server.info(readObject(t, role(`,'rules':[]`+more))))
		if err != nil || got.GetOutcome() != want {
			t.Errorf("%q: got %v, %v", more, got, err)
		}
	}
}

func TestStringDataIsComparedAsData(t *testing.T) {
	secret := readObject(t, `{'apiVersion':'v1','kind':'Secret','data':{'a':'YQ=='},'stringData':{'b':'b'}}`)
	encodeStringData(secret)
	want := readObject(t, `{'apiVersion':'v1','kind':'Secret','data':{'a':'YQ==','b':'Yg=='}}`)
	if got, _ := json.Marshal(secret); string(got) != mustJSON(t, want) {
		t.Errorf("got %s", got)
	}
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
