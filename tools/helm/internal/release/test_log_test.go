package release

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
)

func TestLogTail(t *testing.T) {
	long := strings.Repeat("x", 3*maxLogTail)
	cases := map[string]struct{ text, want string }{
		"short":    {"a\nb\n", "a\nb"},
		"masked":   {"the password is hunter22\n", "the password is (redacted)"},
		"long":     {long, long[:maxLogTail]},
		"boundary": {"hunter22" + strings.Repeat("x", maxLogTail-3), "ted)" + strings.Repeat("x", maxLogTail-3)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := logTail(c.text, []string{"hunter22"})
			if len(got) > maxLogTail || !strings.HasSuffix(c.want, got) || strings.Contains(got, "hunter22") || strings.Contains(got, "r22") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestCompleteLines(t *testing.T) {
	for _, c := range []struct {
		text string
		cut  bool
		want string
	}{
		{"", false, ""}, {"a", false, "a\n"}, {"a\n", false, "a\n"}, {"a\nhunt", true, "a\n"}, {"hunt", true, ""},
	} {
		if got := completeLines(c.text, c.cut); got != c.want {
			t.Errorf("%q: got %q", c.text, got)
		}
	}
}

func TestReadLogAsksForTheEnd(t *testing.T) {
	var query string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		query = request.URL.RawQuery
		_, _ = w.Write([]byte("failed"))
	}))
	defer server.Close()
	core, err := v1.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	text, err := readLog(t.Context(), core.Pods("apps"), "test", "main")
	if err != nil || text != "failed\n" || !strings.Contains(query, "tailLines=50") || !strings.Contains(query, "limitBytes=65536") {
		t.Errorf("got %q, %v; asked for %s", text, err, query)
	}
}

func TestReleaseSecrets(t *testing.T) {
	const secret = "kind: Secret\ndata:\n  a: aHVudGVyMjI=\nstringData:\n  b: hunter33\n"
	const config = "kind: ConfigMap\ndata:\n  c: hunter44\n"
	const list = "kind: List\nitems:\n- kind: Secret\n  data:\n    a: aHVudGVyMjI=\n- kind: ConfigMap\n  data:\n    c: hunter44\n" +
		"- kind: Secret\n  stringData:\n    b: hunter33\n"
	hook := func(manifest string) []*rspb.Hook { return []*rspb.Hook{{Manifest: manifest}} }
	for name, release := range map[string]*rspb.Release{
		"manifest": {Manifest: "---\n" + secret + "---\n" + config},
		"list":     {Manifest: list},
		"hook":     {Manifest: config, Hooks: hook(secret)},
	} {
		t.Run(name, func(t *testing.T) {
			got := releaseSecrets(release)
			for _, want := range []string{"hunter22", "aHVudGVyMjI=", "hunter33", "aHVudGVyMzM="} {
				if !slices.Contains(got, want) {
					t.Errorf("%q is not masked: %q", want, got)
				}
			}
			if slices.Contains(got, "hunter44") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestTestResults(t *testing.T) {
	started := time.Now()
	hook := func(kind, name string, ran time.Time, phase rspb.HookPhase) *rspb.Hook {
		return &rspb.Hook{
			Name: name, Kind: kind, Events: []rspb.HookEvent{rspb.HookTest},
			Manifest: "apiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  namespace: apps\n",
			LastRun:  rspb.HookExecution{StartedAt: ran, Phase: phase},
		}
	}
	release := &Release{name: "web", namespace: "apps", session: (&cluster.Cluster{}).Session(nil, nil)}
	passed := hook("Pod", "a", started, rspb.HookPhaseSucceeded)
	config := hook("ConfigMap", "b", started, rspb.HookPhaseSucceeded)
	failed := hook("Pod", "c", started, rspb.HookPhaseFailed)
	before := hook("Pod", "d", started.Add(-time.Hour), rspb.HookPhaseSucceeded)
	broken := &failure.HookError{Name: "test Pod apps/c", Err: errors.New("pod c failed")}

	results, failedHook := release.testResults([]*rspb.Hook{passed, config, failed, before}, started, broken, nil)
	if len(results) != 2 || failedHook != failed {
		t.Fatalf("got %v, %v", results, failedHook)
	}
	if !results[0].GetPassed() || results[0].GetName() != "Pod apps/a" {
		t.Errorf("got %v", results[0])
	}
	if results[1].GetPassed() || results[1].GetName() != "Pod apps/c" || results[1].GetMessage() != "pod c failed" {
		t.Errorf("got %v", results[1])
	}

	results, failedHook = release.testResults([]*rspb.Hook{passed, before}, started, failure.New(failure.Rejected, "refused"), nil)
	if len(results) != 2 || failedHook != before || results[1].GetMessage() != "refused" {
		t.Errorf("the test that could not be created has failed: got %v", results)
	}
	if results, failedHook = release.testResults([]*rspb.Hook{passed}, started, nil, nil); len(results) != 1 || failedHook != nil {
		t.Errorf("got %v", results)
	}
}

func TestIsTestFailure(t *testing.T) {
	for category, want := range map[error]bool{
		&failure.HookError{Name: "test Pod a", Err: errors.New("failed")}: true,
		failure.New(failure.Rejected, "refused"):                          true,
		failure.New(failure.Unreachable, "no connection"):                 false,
		failure.New(failure.Conflict, "changed"):                          false,
		failure.New(failure.Unauthorized, "credentials"):                  false,
	} {
		if got := isTestFailure(category); got != want {
			t.Errorf("%v: got %v", category, got)
		}
	}
}

func TestTestsRunByWeight(t *testing.T) {
	test := func(name string, weight int, events ...rspb.HookEvent) *rspb.Hook {
		return &rspb.Hook{Name: name, Weight: weight, Events: events}
	}
	hooks := testHooks([]*rspb.Hook{
		test("c", 1, rspb.HookTest), test("b", 0, rspb.HookPostInstall, rspb.HookTest), test("x", 0, rspb.HookPreInstall), test("a", 0, rspb.HookTest),
	})
	names := make([]string, 0, len(hooks))
	for _, hook := range hooks {
		names = append(names, hook.Name)
	}
	if got := strings.Join(names, ""); got != "abc" {
		t.Errorf("got %s", got)
	}
}
