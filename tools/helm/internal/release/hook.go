package release

import (
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/resource"
)

// hookName returns the display name of a hook, such as "pre-install Job namespace/name", or an empty string if the
// resources are not a hook.
func hookName(resources kube.ResourceList, verb string, applied bool) string {
	if len(resources) == 0 {
		return ""
	}
	info := resources[0]
	event := hookEvent(info, verb, applied)
	if event == "" {
		return ""
	}
	name := info.Name
	if info.Mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		name = info.Namespace + "/" + info.Name
	}
	return fmt.Sprintf("%s %s %s", event, info.Mapping.GroupVersionKind.Kind, name)
}

// hookEvent returns the event for which the hook runs. Pre hooks run before the objects are applied, post hooks after.
func hookEvent(info *resource.Info, verb string, applied bool) string {
	accessor, err := meta.Accessor(info.Object)
	if err != nil {
		return ""
	}
	annotation := accessor.GetAnnotations()[rspb.HookAnnotation]
	if annotation == "" {
		return ""
	}
	if verb == verbTest {
		return verbTest
	}
	running, other := "pre-"+verb, "post-"+verb
	if applied {
		running, other = other, running
	}
	events := strings.Split(strings.ReplaceAll(annotation, " ", ""), ",")
	for _, event := range []string{running, other} {
		if slices.Contains(events, event) {
			return event
		}
	}
	return events[0]
}

// hasJobOrPod reports whether the hook has a Job or Pod, for which Helm waits. Other hooks only need to be created.
func hasJobOrPod(resources kube.ResourceList) bool {
	for _, info := range resources {
		switch kind := info.Mapping.GroupVersionKind.GroupKind(); kind.String() {
		case "Job.batch", "Pod":
			return true
		}
	}
	return false
}
