package release

import (
	"log/slog"
	"testing"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"

	"chandler.dev/tools/helm/internal/operation"
)

// A record may list objects of others: Helm's upgrade would delete them.
func TestUpgradesDeleteOnlyObjectsOfTheRelease(t *testing.T) {
	config := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	owned := func(release, namespace string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app.kubernetes.io/managed-by":"Helm"},` +
			`"annotations":{"meta.helm.sh/release-name":"` + release + `","meta.helm.sh/release-namespace":"` + namespace + `"}}}`
	}
	const missing = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
	const forbidden = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403}`
	const unavailable = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"ServiceUnavailable","code":503}`
	const broken = `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"conversion webhook failed","code":500}`
	const unsupported = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"MethodNotAllowed","code":405}`
	elsewhere := func(info *resource.Info) *resource.Info {
		info.Namespace = "kube-system"
		return info
	}
	clusterScoped := func(info *resource.Info) *resource.Info {
		info.Namespace, info.Mapping.Scope = "", meta.RESTScopeRoot
		return info
	}
	const plain = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	cases := map[string]struct {
		info  *resource.Info
		want  bool
		fails bool
	}{
		"own object":                   {objectOn(config, "a", 200, owned("web", "apps")), true, false},
		"own object elsewhere":         {elsewhere(objectOn(config, "a", 200, owned("web", "apps"))), true, false},
		"own, cluster-scoped":          {clusterScoped(objectOn(config, "a", 200, owned("web", "apps"))), true, false},
		"own CRD":                      {objectOn(crdKind.WithVersion("v1"), "a", 200, owned("web", "apps")), true, false},
		"of another release":           {objectOn(config, "a", 200, owned("other", "apps")), false, false},
		"of no release":                {objectOn(config, "a", 200, plain), false, false},
		"of no release, elsewhere":     {elsewhere(objectOn(config, "a", 200, plain)), false, false},
		"of no release, cluster-scope": {clusterScoped(objectOn(config, "a", 200, plain)), false, false},
		"missing":                      {objectOn(config, "a", 404, missing), false, false},
		"unreadable":                   {objectOn(config, "a", 403, forbidden), false, false},
		"without a fixed name":         {objectOn(config, "", 200, owned("web", "apps")), false, false},
		"unavailable":                  {objectOn(config, "a", 503, unavailable), false, true},
		"conversion fails":             {objectOn(config, "a", 500, broken), false, true},
		"kind cannot be read":          {objectOn(config, "a", 405, unsupported), false, false},
		"in the package":               {objectOn(config, "kept", 403, forbidden), true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			client := &client{
				Client: &kube.Client{Namespace: "apps"}, release: "web",
				operation: &operation.Operation{Log: slog.New(slog.DiscardHandler)},
			}
			target := kube.ResourceList{objectOn(config, "kept", 403, forbidden)}
			got, err := client.withoutForeign(kube.ResourceList{c.info}, target)
			if (err != nil) != c.fails || got.Contains(c.info) != c.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
